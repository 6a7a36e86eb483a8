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
        ino = match meta.ask(&Lookup(at), &Interrupt::never()) {
            Ok((ino, _)) => ino,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(ino))
}

/// The directory at `path`, made with all above it where it is missing.
pub(crate) fn directory(meta: &Meta, path: &str) -> FsResult<Ino> {
    let mut dir = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let at = At::new(dir, Name::new(part.as_bytes())?);
        dir = match meta.ask(&Lookup(at), &Interrupt::never()) {
            Ok((ino, attr)) if attr.is_dir() => ino,
            Ok(_) => return Err(FsError::NotDir),
            Err(FsError::NotFound) => make_dir(meta, dir, part)?,
            Err(error) => return Err(error),
        };
    }
    Ok(dir)
}
