//! Errors as `OSError`, whose subclass follows from the error number.

use pyo3::{PyErr, exceptions::PyOSError};
use sluice_open::OpenError;
use sluice_types::FsError;

/// The error of a call on a path.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn of_path(error: sluice_fs::Error) -> PyErr {
    let path = String::from_utf8_lossy(&error.path).into_owned();
    PyOSError::new_err((error.errno(), error.error.to_string(), path))
}

/// The error of opening a volume.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn of_open(error: OpenError) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// An error that is about no path.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn plain(error: FsError) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// What a closed file or volume answers.
pub(crate) fn closed(what: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("I/O operation on closed {what}"))
}
