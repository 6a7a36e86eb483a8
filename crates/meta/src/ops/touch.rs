//! Touch: sets the access time of an inode that was read, and nothing else.

use sluice_types::{Attr, Ino, Time};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    engine::Hold,
    op::{ConflictKey, ConflictKeys, Op},
    schema::Row,
    view::{Stop, View},
};

/// Raises the access time. Two trips.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The inode.
    pub ino: Ino,
    /// When it was read.
    pub atime: Time,
}

impl Op for Touch {
    type Out = Attr;
    const NAME: &'static str = "touch";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let mut attr = rules::existing(view, self.ino, Hold::Lock)?;
        if self.atime > attr.atime {
            attr.atime = self.atime;
            view.put(Row::Node(self.ino, attr));
            view.log(|| Line::Access(self.ino));
        }
        Ok(attr)
    }
}
