//! The memory of the caller.
//!
//! What must stay true: this is the only file that follows a pointer. The functions trust their
//! pointers but are not marked `unsafe`. Only exported functions call them, with pointers that C
//! passed. The header states what C must guarantee. A caller in Rust could check nothing more. A
//! null pointer gives an error, not a crash.

use std::{
    ffi::{CStr, c_char},
    ptr, slice,
};

use crate::border::{Failure, Outcome, invalid};

/// A text that ends in NUL, for as long as the call runs.
pub(crate) fn text<'a>(pointer: *const c_char) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return Err(null());
    }
    // SAFETY: the header asks for texts that end in NUL and do not change during the call.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A text that may be left out.
pub(crate) fn text_or_empty<'a>(pointer: *const c_char) -> Outcome<&'a [u8]> {
    if pointer.is_null() { Ok(b"") } else { text(pointer) }
}

/// A text in UTF-8.
pub(crate) fn utf8<'a>(pointer: *const c_char) -> Outcome<&'a str> {
    std::str::from_utf8(text_or_empty(pointer)?).map_err(|_| invalid("a text is not in UTF-8"))
}

/// `count` values that the call reads.
pub(crate) fn values<'a, T>(pointer: *const T, count: usize) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, count)?;
    // SAFETY: the header asks for that many values, which do not change during the call.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// `count` bytes that the call writes. They may be of any content, also none yet: they are written
/// only.
pub(crate) fn bytes_out<'a>(pointer: *mut u8, count: usize) -> Outcome<&'a mut [u8]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(pointer, count)?;
    // SAFETY: the header asks for that many bytes that nobody else uses during the call.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count) })
}

/// Fills a structure of the caller.
pub(crate) fn put<T>(pointer: *mut T, value: T) -> Outcome<()> {
    check(pointer, 1)?;
    // SAFETY: the header asks for room for one of them.
    unsafe { ptr::write(pointer, value) };
    Ok(())
}

/// Copies values to the caller, if they fit, and returns their number. With room for none, only the
/// number is asked for.
pub(crate) fn write_values<T: Copy>(pointer: *mut T, count: usize, values: &[T]) -> Outcome<u64> {
    if count != 0 {
        check(pointer, count)?;
        if values.len() > count {
            let (has, room) = (values.len(), count);
            return Err(Failure::new(libc::ERANGE, format!("there are {has} values, and room for {room}")));
        }
        // SAFETY: the header asks for room for `count` values, and there are not more. They cannot
        // overlap: the values are the library's.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), pointer, values.len()) };
    }
    Ok(values.len() as u64)
}

/// Copies bytes to the caller, if they fit, and returns their number. With room for none, only the
/// number is asked for.
pub(crate) fn put_bytes(pointer: *mut u8, size: usize, bytes: &[u8]) -> Outcome<u64> {
    write_values(pointer, size, bytes)
}

fn check<T>(pointer: *const T, count: usize) -> Outcome<()> {
    if pointer.is_null() {
        return Err(null());
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if !fits || !pointer.is_aligned() {
        return Err(invalid("an argument is too large or not aligned"));
    }
    Ok(())
}

fn null() -> Failure {
    Failure::new(libc::EFAULT, "an argument is a null pointer")
}
