//! The boundary between C and Rust: results, the last error, and panics.
//!
//! What must stay true: every exported function that can fail runs inside [`number`] or [`status`].

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

pub(crate) use sluice_open::Failure;

pub(crate) type Outcome<T> = Result<T, Failure>;

thread_local! {
    /// What the last call of this thread that failed had to say.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The failure of an argument that has no meaning.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(libc::EINVAL, message)
}

/// Runs a call whose result is a number, 0 or above. A failure is its negative error number.
pub(crate) fn number(call: impl FnOnce() -> Outcome<u64>) -> i64 {
    // Whatever the call was about to change is behind locks that do not poison, or is dropped.
    let outcome =
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::of_panic(panic.as_ref())));
    match outcome {
        Ok(number) => i64::try_from(number).unwrap_or(i64::MAX),
        Err(failure) => {
            // At the end of a thread there may be no such place any more.
            LAST.try_with(|last| *last.borrow_mut() = failure.message).ok();
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
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_a_message() {
        assert_eq!(number(|| Ok(7)), 7);
        assert_eq!(status(|| std::panic::panic_any(String::from("seven"))), -libc::EIO);
        assert!(last_message().ends_with("seven"), "{}", last_message());
        assert_eq!(status(|| Err(invalid("no"))), -libc::EINVAL);
        assert_eq!(last_message(), "no");
    }
}
