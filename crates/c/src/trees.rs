//! Whole trees, and files made of other files.

use std::ffi::c_char;

use sluice_fs::Clone as CloneHow;

use crate::{
    border::{Outcome, number, status},
    handles,
    memory::{put, text, values},
    structs::SluiceSummary,
};

/// Appends `count` files to a file, without a copy of data, and removes them.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_concat(
    volume: i64,
    target: *const c_char,
    sources: *const *const c_char,
    count: usize,
) -> i32 {
    status(|| {
        let sources: Vec<&[u8]> =
            values(sources, count)?.iter().map(|source| text(*source)).collect::<Outcome<_>>()?;
        Ok(handles::view(volume)?.fs.concat(text(target)?, &sources)?)
    })
}

/// Clones what is at a path, and all below it, without a copy of data. Owner, mode and times are
/// kept if `preserve` is not 0. Returns the inode of the clone.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_clone(volume: i64, from: *const c_char, to: *const c_char, preserve: i32) -> i64 {
    number(|| {
        let how = CloneHow { preserve: preserve != 0 };
        Ok(handles::view(volume)?.fs.clone_tree(text(from)?, text(to)?, how)?.0)
    })
}

/// Counts what is at a path and all below it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_summary(volume: i64, path: *const c_char, summary: *mut SluiceSummary) -> i32 {
    status(|| {
        let (total, denied) = handles::view(volume)?.fs.summary(text(path)?)?;
        put(summary, SluiceSummary::new(&total, denied.count))
    })
}
