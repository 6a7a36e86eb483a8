//! Listings of directories.

use std::{ffi::c_char, sync::Arc};

use parking_lot::Mutex;

use crate::{
    border::{number, status},
    handles::{self, Handle},
    listing::Listing,
    memory::{put, text},
    structs::SluiceEntry,
};

/// Begins to list a directory and returns the handle of the listing. Its memory does not depend on
/// the size of the directory.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_dir_open(volume: i64, path: *const c_char) -> i64 {
    number(|| {
        let listing = Listing::begin(handles::view(volume)?.fs.clone(), text(path)?)?;
        Ok(handles::add(Handle::Listing(Arc::new(Mutex::new(listing)))))
    })
}

/// The next name of a listing, without `.` and `..`. Returns 1, or 0 at the end. Names that are
/// there all the time come at least once, and once only if the metadata engine sorts names: all but
/// Redis do.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_dir_next(dir: i64, entry: *mut SluiceEntry) -> i32 {
    number(|| {
        let listing = handles::listing(dir)?;
        let item = listing.lock().item()?;
        match item {
            Some(item) => put(entry, SluiceEntry::from(&item)).map(|()| 1),
            None => Ok(0),
        }
    }) as i32
}

/// Ends a listing.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_dir_close(dir: i64) -> i32 {
    status(|| handles::drop_listing(dir))
}
