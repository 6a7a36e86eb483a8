//! Lookup: the node of a name in a directory.

use sluice_types::{Attr, FsError, Ino};

use crate::{
    engine::Hold,
    op::{At, ConflictKeys, Op},
    view::{Stop, View},
};

/// Finds an entry and the attributes of its node. One trip.
#[derive(Clone, Debug)]
pub struct Lookup(pub At);

impl Op for Lookup {
    type Out = (Ino, Attr);
    const NAME: &'static str = "lookup";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        match view.follow(self.0.dir, &self.0.name, Hold::None)? {
            Some((entry, Some(attr))) => Ok((entry.ino, attr)),
            Some((entry, None)) => {
                tracing::error!(dir = %self.0.dir, name = %self.0.name, ino = %entry.ino, "an entry names a node that is missing; run `sluice fsck`");
                Err(FsError::NotFound.into())
            }
            None => Err(FsError::NotFound.into()),
        }
    }
}
