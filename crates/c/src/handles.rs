//! Maps handle numbers to objects.
//!
//! What must stay true: a number is never used twice, so a closed handle never refers to another
//! object. A child process cannot use the handles of its parent, because their threads and
//! connections exist only in the parent.

use std::{
    collections::HashMap,
    process,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use sluice_fs::{Accounts, File, Fs};

use crate::{
    border::{Failure, Outcome},
    listing::Listing,
};

/// A volume as a user sees it.
pub(crate) struct View {
    pub(crate) fs: Fs,
    /// Users and groups by name.
    pub(crate) accounts: Arc<Accounts>,
}

/// What a number stands for.
#[derive(Clone)]
pub(crate) enum Handle {
    View(Arc<View>),
    File(Arc<File>),
    Listing(Arc<Mutex<Listing>>),
}

static HANDLES: LazyLock<RwLock<HashMap<(u32, i64), Handle>>> = LazyLock::new(RwLock::default);
static NEXT: AtomicI64 = AtomicI64::new(1);

/// A number for something.
pub(crate) fn add(handle: Handle) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HANDLES.write().insert((process::id(), number), handle);
    number as u64
}

/// The volume of a number.
pub(crate) fn view(number: i64) -> Outcome<Arc<View>> {
    match get(number) {
        Some(Handle::View(view)) => Ok(view),
        found => Err(not(number, "volume", found.is_some())),
    }
}

/// The open file of a number.
pub(crate) fn file(number: i64) -> Outcome<Arc<File>> {
    match get(number) {
        Some(Handle::File(file)) => Ok(file),
        found => Err(not(number, "file", found.is_some())),
    }
}

/// The listing of a number.
pub(crate) fn listing(number: i64) -> Outcome<Arc<Mutex<Listing>>> {
    match get(number) {
        Some(Handle::Listing(listing)) => Ok(listing),
        found => Err(not(number, "listing", found.is_some())),
    }
}

/// Forgets a volume and returns it.
pub(crate) fn take_view(number: i64) -> Outcome<Arc<View>> {
    view(number)?;
    match take(number) {
        Some(Handle::View(view)) => Ok(view),
        _ => Err(not(number, "volume", false)),
    }
}

/// Forgets a file and returns it.
pub(crate) fn take_file(number: i64) -> Outcome<Arc<File>> {
    file(number)?;
    match take(number) {
        Some(Handle::File(file)) => Ok(file),
        _ => Err(not(number, "file", false)),
    }
}

/// Forgets a listing.
pub(crate) fn drop_listing(number: i64) -> Outcome<()> {
    listing(number)?;
    take(number).map(drop).ok_or_else(|| not(number, "listing", false))
}

fn get(number: i64) -> Option<Handle> {
    HANDLES.read().get(&(process::id(), number)).cloned()
}

fn take(number: i64) -> Option<Handle> {
    HANDLES.write().remove(&(process::id(), number))
}

fn not(number: i64, what: &str, other: bool) -> Failure {
    let why = if other { "is no" } else { "is not, or no longer, an open" };
    Failure::new(libc::EBADF, format!("{number} {why} {what}"))
}
