//! Flock: BSD locks, which cover a whole file.

use sluice_types::{FsError, Ino};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Change, FlockKind, Key, LockOwner, Row},
    view::{Stop, View},
    want::Want,
};

/// Takes, changes or releases a BSD lock without waiting. Two trips.
#[derive(Clone, Debug)]
pub struct Flock {
    /// The file.
    pub ino: Ino,
    /// Who.
    pub owner: LockOwner,
    /// Which lock; `None` releases it.
    pub kind: Option<FlockKind>,
}

impl Op for Flock {
    type Out = ();
    const NAME: &'static str = "flock";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let list = List::Flocks(self.ino);
        let node = Want::node(self.ino, Hold::Lock);
        view.want(&[node, Want::all(list, Hold::Lock)])?;
        if self.kind.is_some() {
            rules::existing(view, self.ino, Hold::Lock)?;
        }
        let held = view.all(list, Hold::Lock)?;
        let (mut mine, mut others_read, mut others_write) = (None, false, false);
        for row in held {
            if let Row::Flock(_, owner, kind) = row {
                if owner == self.owner {
                    mine = Some(kind);
                } else if kind == FlockKind::Write {
                    others_write = true;
                } else {
                    others_read = true;
                }
            }
        }
        let Some(kind) = self.kind else {
            if mine.is_some() {
                view.delete(Key::Flock(self.ino, self.owner));
                view.log(|| Line::Flock { ino: self.ino, owner: self.owner, kind: 'U' });
                view.write(Write::Notify(Change::Lock(self.ino)));
            }
            return Ok(());
        };
        if others_write || others_read && kind == FlockKind::Write {
            return Err(FsError::Again.into());
        }
        if mine == Some(FlockKind::Write) && kind == FlockKind::Read {
            view.write(Write::Notify(Change::Lock(self.ino)));
        }
        if mine != Some(kind) {
            view.put(Row::Flock(self.ino, self.owner, kind));
            let kind = if kind == FlockKind::Write { 'W' } else { 'R' };
            view.log(|| Line::Flock { ino: self.ino, owner: self.owner, kind });
        }
        Ok(())
    }
}
