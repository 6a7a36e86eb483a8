//! Readlink: the target of a symbolic link.

use bytes::Bytes;
use sluice_types::{FsError, Ino};

use crate::{
    engine::Hold,
    op::{ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
};

/// Reads the target of a symbolic link. One trip.
#[derive(Clone, Debug)]
pub struct Readlink(pub Ino);

impl Op for Readlink {
    type Out = Bytes;
    const NAME: &'static str = "readlink";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Bytes, Stop> {
        match view.get(&Key::Symlink(self.0), Hold::None)? {
            Some(Row::Symlink(_, target)) => Ok(target),
            _ => Err(FsError::NotFound.into()),
        }
    }
}
