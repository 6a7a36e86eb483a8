//! What libraries for other languages say of a call that failed: an error number and a message.

use std::{any::Any, error::Error};

use sluice_types::FsError;

use crate::error::OpenError;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error number, positive.
    pub errno: i32,
    /// What to tell people.
    pub message: String,
}

impl Failure {
    /// A failure with this error number, positive.
    pub fn new(errno: i32, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// The failure of a call that panicked: `EIO`, with the text of the panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Self::new(FsError::io(text).errno(), format!("a defect of Sluice, please report it: {text}"))
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<sluice_fs::Error> for Failure {
    fn from(error: sluice_fs::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.extend([": ", &error.to_string()]);
            cause = error.source();
        }
        Self::new(error.errno(), message)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failure_has_the_number_of_its_error_and_all_causes() {
        let missing = io::Error::from_raw_os_error(2);
        let failure = Failure::from(OpenError::File("the password".into(), missing));
        assert_eq!(failure.errno, 2);
        assert!(failure.message.starts_with("the password: No such file"), "{}", failure.message);
        assert_eq!(Failure::from(OpenError::Invalid("a flag".into())).errno, FsError::Invalid.errno());
        assert_eq!(Failure::from(FsError::Access).errno, FsError::Access.errno());
        let panic: Box<dyn Any + Send> = Box::new("seven");
        assert_eq!(Failure::of_panic(panic.as_ref()).errno, FsError::io("").errno());
        assert!(Failure::of_panic(panic.as_ref()).message.ends_with("seven"));
    }
}
