//! Paths inside a volume that is not mounted.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use sluice_meta::{
    Interrupt, Meta,
    op::At,
    ops::{create::Create, lookup::Lookup},
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Name};

/// What it takes to make a node, with the mode that umask 022 leaves.
pub(crate) fn create(at: At, ino: Ino, kind: FileType, mode: u16) -> Create {
    Create { at, ino, kind, mode, umask: 0o022, rdev: 0, target: None, caller: Caller::client() }
}

/// Makes a directory.
pub(crate) fn make_dir(meta: &Meta, dir: Ino, name: &[u8]) -> FsResult<Ino> {
    let never = Interrupt::never();
    let ino = meta.new_ino(&never)?;
    meta.run(create(At::new(dir, Name::new(name)?), ino, FileType::Dir, 0o777), &never)?;
    Ok(ino)
}

/// What stands at `path`; `None` if nothing does.
pub(crate) fn find(meta: &Meta, path: impl AsRef<OsStr>) -> FsResult<Option<Ino>> {
    let mut ino = Ino::ROOT;
    for part in names(path.as_ref()) {
        let at = At::new(ino, Name::new(part)?);
        ino = match meta.read(&Lookup(at), &Interrupt::never()) {
            Ok((ino, _)) => ino,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(ino))
}

/// The directory at `path`, made with all above it where it is missing. Others may make the same.
pub(crate) fn directory(meta: &Meta, path: impl AsRef<OsStr>) -> FsResult<Ino> {
    names(path.as_ref()).try_fold(Ino::ROOT, |dir, part| found_or_made(meta, dir, part))
}

/// The names that a path is made of.
fn names(path: &OsStr) -> impl Iterator<Item = &[u8]> {
    path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// The directory of that name, made if it is missing; `EPERM` if mounts show something of their own
/// by it.
pub(crate) fn found_or_made(meta: &Meta, dir: Ino, name: &[u8]) -> FsResult<Ino> {
    if dir == Ino::ROOT && std::str::from_utf8(name).is_ok_and(sluice_vfs::is_reserved) {
        return Err(FsError::Perm);
    }
    let look = Lookup(At::new(dir, Name::new(name)?));
    let found = || match meta.read(&look, &Interrupt::never())? {
        (ino, attr) if attr.is_dir() => Ok(ino),
        _ => Err(FsError::NotDir),
    };
    match found() {
        Err(FsError::NotFound) => match make_dir(meta, dir, name) {
            // Somebody was faster.
            Err(FsError::Exists) => found(),
            made => made.inspect(|ino| {
                let name = String::from_utf8_lossy(name);
                tracing::info!(?name, %ino, "a directory did not exist and was made");
            }),
        },
        found => found,
    }
}
