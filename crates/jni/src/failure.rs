//! Converts errors into the Java exception `io.sluice.NativeException`.
//!
//! What must stay true: a panic is an exception, too.

use std::any::Any;

use jni::{Env, errors::ErrorPolicy, jni_str, strings::JNIString};
use sluice_fs::FsError;
use sluice_open::OpenError;

/// Result of a native method.
pub(crate) type Answer<T> = Result<T, Failure>;

/// Why a native method failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl From<sluice_fs::Error> for Failure {
    fn from(error: sluice_fs::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            message.extend([": ", &error.to_string()]);
            cause = error.source();
        }
        Self::new(libc::EIO, message)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Self::new(libc::EFAULT, format!("a value from Java cannot be used: {error}"))
    }
}

/// Throws what went wrong, unless something else is thrown already.
pub(crate) struct Throw;

impl Throw {
    /// The constructor takes one text; the errno comes first in it.
    fn throw(env: &mut Env<'_>, failure: &Failure) {
        if env.exception_check() {
            return;
        }
        let text = JNIString::from(format!("{} {}", failure.errno, failure.message));
        // It answers that an exception is on its way.
        let _ = env.throw_new(jni_str!("io/sluice/NativeException"), text);
    }
}

impl<T: Default> ErrorPolicy<T, Failure> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut Self::Captures<'unowned_env_local, 'native_method>,
        failure: Failure,
    ) -> jni::errors::Result<T> {
        Self::throw(env, &failure);
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut Self::Captures<'unowned_env_local, 'native_method>,
        payload: Box<dyn Any + Send>,
    ) -> jni::errors::Result<T> {
        let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Self::throw(env, &Failure::new(libc::EIO, format!("a defect of Sluice: {text}")));
        Ok(T::default())
    }
}
