//! Sustained files: files without a name that are open in a session.

use sluice_types::{FsError, Ino};
use smallvec::smallvec;

use super::removal::destroy;
use crate::{
    change_log::Line,
    engine::Hold,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Ends a sustained file after its last close, or after the death of its session. Two trips.
#[derive(Clone, Debug)]
pub struct DropSustained {
    /// The session.
    pub sid: u64,
    /// The file.
    pub ino: Ino,
    /// The session is dead if it expires before this, Unix seconds: one that came back may have the
    /// file open. `None` for whoever closed a file of its own.
    pub dead_before: Option<i64>,
}

impl Op for DropSustained {
    /// Length of the file, whose chunks now wait to be deleted; `None` if somebody else did it, or
    /// the session lives. Fails with `EBUSY` if this client, whose own it is, opened it again
    /// meanwhile.
    type Out = Option<u64>;
    const NAME: &'static str = "drop_sustained";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Option<u64>, Stop> {
        let key = Key::Sustained(self.sid, self.ino);
        let mut wanted = vec![Want::get(key.clone(), Hold::Lock), Want::node(self.ino, Hold::Lock)];
        if self.dead_before.is_some() {
            wanted.push(Want::get(Key::Session(self.sid), Hold::Guard));
        }
        view.want(&wanted)?;
        if let Some(before) = self.dead_before
            && let Some(Row::Session(_, session)) = view.get(&Key::Session(self.sid), Hold::Guard)?
            && session.expire >= before
        {
            return Ok(None);
        }
        if view.get(&key, Hold::Lock)?.is_none() {
            return Ok(None);
        }
        if self.dead_before.is_none() && !view.destroys(self.ino) {
            return Err(FsError::Busy.into());
        }
        view.delete(key);
        match view.node(self.ino, Hold::Lock)? {
            Some(attr) if attr.nlink == 0 => {
                view.log(|| Line::DropSustained { sid: self.sid, ino: self.ino });
                Ok(destroy(view, self.ino, &attr))
            }
            _ => Ok(None),
        }
    }
}
