//! The memory of Python objects, used without the lock of the interpreter (the GIL).
//!
//! What must stay true: this is the only file with `unsafe`. `pyo3` releases the lock only while no
//! Python object is in use. So safe code cannot fill a Python buffer without the lock. The
//! alternative is a copy under the lock, which would block all other Python threads.

#![allow(unsafe_code, reason = "fills objects of Python without the lock of the interpreter")]

use std::slice;

use pyo3::{buffer::PyBuffer, exceptions::PyBufferError, prelude::*};

/// Runs `fill` on the bytes of an object that may be written, without the lock.
pub(crate) fn fill<T: Send>(
    py: Python<'_>,
    buffer: &PyBuffer<u8>,
    fill: impl FnOnce(&mut [u8]) -> T + Send,
) -> PyResult<T> {
    if buffer.readonly() {
        return Err(PyBufferError::new_err("the buffer is read-only"));
    }
    let (start, count) = whole(buffer)?;
    if count == 0 {
        return Ok(py.detach(|| fill(&mut [])));
    }
    // SAFETY: the object keeps these bytes where they are until the buffer is released, which is
    // after this. That nobody else uses them meanwhile is for the program to see to, which gave
    // away the object to be filled; it is the same with `readinto` of Python's own files.
    let bytes = unsafe { slice::from_raw_parts_mut(start, count) };
    Ok(py.detach(|| fill(bytes)))
}

/// Runs `take` on the bytes of an object, without the lock.
pub(crate) fn take<T: Send>(
    py: Python<'_>,
    buffer: &PyBuffer<u8>,
    take: impl FnOnce(&[u8]) -> T + Send,
) -> PyResult<T> {
    let (start, count) = whole(buffer)?;
    if count == 0 {
        return Ok(py.detach(|| take(&[])));
    }
    // SAFETY: the object keeps these bytes where they are until the buffer is released. A program
    // that changes them meanwhile, from another thread, is told by Python's own files, too, that
    // what is written is not defined.
    let bytes = unsafe { slice::from_raw_parts(start, count) };
    Ok(py.detach(|| take(bytes)))
}

/// Where the bytes of a buffer are, if they are in one piece.
fn whole(buffer: &PyBuffer<u8>) -> PyResult<(*mut u8, usize)> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not in one piece"));
    }
    Ok((buffer.buf_ptr().cast(), buffer.len_bytes()))
}
