//! Making, moving and removing names.

use std::ffi::c_char;

use sluice_fs::RenameMode;

use crate::{
    border::{invalid, number, status},
    handles,
    memory::{put_bytes, text},
};

/// For sluice_rename: if the new name exists, the call fails.
pub const SLUICE_RENAME_NOREPLACE: u32 = 1;
/// For sluice_rename: swap the two names.
pub const SLUICE_RENAME_EXCHANGE: u32 = 2;

/// Makes a directory.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mkdir(volume: i64, path: *const c_char, mode: u32) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.mkdir(text(path)?, (mode & 0o7777) as u16)?))
}

/// Makes a directory and those above it that do not exist. It is no error if it exists.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mkdirs(volume: i64, path: *const c_char, mode: u32) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.mkdir_all(text(path)?, (mode & 0o7777) as u16)?))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_rmdir(volume: i64, path: *const c_char) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.rmdir(text(path)?)?))
}

/// Removes a name of what is no directory.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_unlink(volume: i64, path: *const c_char) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.unlink(text(path)?)?))
}

/// Removes what is at a path and all below it. It goes to the trash if the volume has one, unless
/// `skip_trash` is not 0, which only superusers may say.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_remove_all(volume: i64, path: *const c_char, skip_trash: i32) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.remove_all(text(path)?, skip_trash != 0)?))
}

/// Moves a name. `flags` is 0 (an existing new name is replaced), `SLUICE_RENAME_NOREPLACE` or
/// `SLUICE_RENAME_EXCHANGE`.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_rename(volume: i64, from: *const c_char, to: *const c_char, flags: u32) -> i32 {
    status(|| {
        let mode = match flags {
            0 => RenameMode::Replace,
            SLUICE_RENAME_NOREPLACE => RenameMode::NoReplace,
            SLUICE_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(invalid(format!("flags of rename that have no meaning: {flags}"))),
        };
        Ok(handles::view(volume)?.fs.rename(text(from)?, text(to)?, mode)?)
    })
}

/// Gives a file one more name.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_link(volume: i64, existing: *const c_char, new_name: *const c_char) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.link(text(existing)?, text(new_name)?)?))
}

/// Makes a symbolic link.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_symlink(volume: i64, target: *const c_char, path: *const c_char) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.symlink(text(target)?, text(path)?)?))
}

/// Target of a symbolic link, without a NUL. Returns the number of its bytes; `-ERANGE` if they do
/// not fit. With `size` 0 only the number is returned.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_readlink(volume: i64, path: *const c_char, buffer: *mut c_char, size: usize) -> i64 {
    number(|| put_bytes(buffer.cast(), size, &handles::view(volume)?.fs.readlink(text(path)?)?))
}
