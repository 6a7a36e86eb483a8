//! Volumes for Python: the module `sluice._native`, which the package in `sdk/python` uses.
//!
//! | module | what |
//! |---|---|
//! | `volume`, `names`, `attrs` | `Volume`: the calls on paths |
//! | `quotas` | the calls on quotas |
//! | `stat` | attributes as tuples |
//! | `file` | `File`: open files, without a position |
//! | `ranges` | many ranges read at once |
//! | `buffer` | the memory of Python's objects |
//! | `error` | errors as `OSError` |
//!
//! What must stay true: no call that may wait holds the lock of the interpreter. Paths are bytes;
//! the package converts path strings into bytes.

// Python has what the library needs of it; a test program has not. So the one that `cargo test
// --lib` makes of this crate is empty.
#![cfg(not(test))]

mod attrs;
mod buffer;
mod error;
mod file;
mod names;
mod quotas;
mod ranges;
mod stat;
mod volume;

use pyo3::prelude::*;

/// Volumes, without a mount. Use the package `sluice`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::volume::Volume;

    #[allow(clippy::wildcard_imports, reason = "the module of a macro")]
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
