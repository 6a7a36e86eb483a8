//! Paths inside a volume that is not mounted.

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
pub(crate) fn make_dir(meta: &Meta, dir: Ino, name: &str) -> FsResult<Ino> {
    let never = Interrupt::never();
    let ino = meta.new_ino(&never)?;
    meta.run(create(At::new(dir, Name::new(name.as_bytes())?), ino, FileType::Dir, 0o777), &never)?;
    Ok(ino)
}

/// What stands at `path`; `None` if nothing does.
pub(crate) fn find(meta: &Meta, path: &str) -> FsResult<Option<Ino>> {
    let mut ino = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let at = At::new(ino, Name::new(part.as_bytes())?);
        ino = match meta.read(&Lookup(at), &Interrupt::never()) {
            Ok((ino, _)) => ino,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(ino))
}

/// The directory at `path`, made with all above it where it is missing. Others may make the same.
pub(crate) fn directory(meta: &Meta, path: &str) -> FsResult<Ino> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(Ino::ROOT, |dir, part| found_or_made(meta, dir, part))
}

/// The directory of that name, made if it is missing; `EPERM` if mounts show something of their own
/// by it.
pub(crate) fn found_or_made(meta: &Meta, dir: Ino, name: &str) -> FsResult<Ino> {
    if dir == Ino::ROOT && sluice_vfs::is_reserved(name) {
        return Err(FsError::Perm);
    }
    let look = Lookup(At::new(dir, Name::new(name.as_bytes())?));
    let found = || match meta.read(&look, &Interrupt::never())? {
        (ino, attr) if attr.is_dir() => Ok(ino),
        _ => Err(FsError::NotDir),
    };
    match found() {
        Err(FsError::NotFound) => match make_dir(meta, dir, name) {
            // Somebody was faster.
            Err(FsError::Exists) => found(),
            made => made.inspect(|ino| tracing::info!(name, %ino, "a directory did not exist and was made")),
        },
        found => found,
    }
}
