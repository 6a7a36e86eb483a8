//! Extended attributes.

use std::ffi::c_char;

use sluice_fs::XattrMode;

use crate::{
    border::{invalid, number, status},
    handles,
    memory::{put_bytes, text, values},
};

/// For sluice_setxattr: if the attribute exists, the call fails.
pub const SLUICE_XATTR_CREATE: i32 = 1;
/// For sluice_setxattr: if the attribute does not exist, the call fails.
pub const SLUICE_XATTR_REPLACE: i32 = 2;

/// Value of an extended attribute. Returns the number of its bytes; `-ERANGE` if they do not fit.
/// With `size` 0 only the number is returned.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_getxattr(
    volume: i64,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut u8,
    size: usize,
) -> i64 {
    number(|| put_bytes(buffer, size, &handles::view(volume)?.fs.xattr(text(path)?, text(name)?)?))
}

/// Sets an extended attribute. `flags` is 0, `SLUICE_XATTR_CREATE` or `SLUICE_XATTR_REPLACE`.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_setxattr(
    volume: i64,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    size: usize,
    flags: i32,
) -> i32 {
    status(|| {
        let mode = match flags {
            0 => XattrMode::Any,
            SLUICE_XATTR_CREATE => XattrMode::Create,
            SLUICE_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(invalid(format!("flags of setxattr that have no meaning: {flags}"))),
        };
        Ok(handles::view(volume)?.fs.set_xattr(text(path)?, text(name)?, values(value, size)?, mode)?)
    })
}

/// Names of the extended attributes that the user may see, each with a NUL at its end. Returns the
/// number of bytes; `-ERANGE` if they do not fit. With `size` 0 only the number is returned.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listxattr(
    volume: i64,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    number(|| {
        let mut all = Vec::new();
        for name in handles::view(volume)?.fs.xattrs(text(path)?)? {
            all.extend(name);
            all.push(0);
        }
        put_bytes(buffer.cast(), size, &all)
    })
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_removexattr(volume: i64, path: *const c_char, name: *const c_char) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.remove_xattr(text(path)?, text(name)?)?))
}
