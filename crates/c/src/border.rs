//! The boundary between C and Rust: results, the last error, and panics.
//!
//! What must stay true: every exported function that can fail runs inside [`number`] or [`status`].

use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use sluice_fs::FsError;
use sluice_open::OpenError;

/// Why a call failed: an error number, and what to tell people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    pub(crate) message: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

thread_local! {
    /// What the last call of this thread that failed had to say.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Failure {
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// Of an argument that has no meaning.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
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
        Self::new(error.errno(), error.to_string())
    }
}

/// Runs a call whose result is a number, 0 or above. A failure is its negative error number.
pub(crate) fn number(call: impl FnOnce() -> Outcome<u64>) -> i64 {
    // Whatever the call was about to change is behind locks that do not poison, or is dropped.
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(of_panic(panic.as_ref())));
    match outcome {
        Ok(number) => i64::try_from(number).unwrap_or(i64::MAX),
        Err(failure) => {
            LAST.with_borrow_mut(|last| *last = failure.message);
            -i64::from(failure.errno)
        }
    }
}

/// Runs a call that has no result but success.
pub(crate) fn status(call: impl FnOnce() -> Outcome<()>) -> i32 {
    number(|| call().map(|()| 0)) as i32
}

/// What the last failure of this thread had to say.
pub(crate) fn last_message() -> String {
    LAST.with_borrow(String::clone)
}

fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::new(libc::EIO, format!("a defect in libsluice, please report it: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_a_message() {
        assert_eq!(number(|| Ok(7)), 7);
        assert_eq!(status(|| std::panic::panic_any(String::from("seven"))), -libc::EIO);
        assert!(last_message().ends_with("seven"), "{}", last_message());
        assert_eq!(status(|| Err(Failure::invalid("no"))), -libc::EINVAL);
        assert_eq!(last_message(), "no");
    }
}
