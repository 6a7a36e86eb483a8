//! Records and collections removed.
//!
//! What must stay true: the caller learns whether there was a record, for some removals are a
//! conflict without one.

use rusqlite::params;
use sluice_meta::{
    engine::{EngineError, List},
    schema::Key,
};

use super::{
    super::read::{borrowed, id, text_or_bytes},
    Writing,
};
use crate::values::quota_columns;

impl Writing<'_, '_> {
    /// Removes a record; whether there was one.
    pub(super) fn remove(&self, key: &Key) -> Result<bool, EngineError> {
        let changed = match key {
            Key::Setting => self.run("DELETE FROM jfs_setting WHERE name='format'", [])?,
            Key::Counter(counter) => self.run("DELETE FROM jfs_counter WHERE name=?1", [counter.name()])?,
            Key::Node(ino) => self.run("DELETE FROM jfs_node WHERE inode=?1", [id(*ino)])?,
            Key::Entry(dir, name) => {
                self.run("DELETE FROM jfs_edge WHERE parent=?1 AND name=?2", params![id(*dir), &name[..]])?
            }
            // Counted from the entries.
            Key::Parents(..) => 1,
            Key::Symlink(ino) => self.run("DELETE FROM jfs_symlink WHERE inode=?1", [id(*ino)])?,
            Key::Xattr(ino, name) => self.run(
                "DELETE FROM jfs_xattr WHERE inode=?1 AND name=?2",
                params![id(*ino), borrowed(text_or_bytes(name))],
            )?,
            Key::Chunk(ino, index) => {
                self.run("DELETE FROM jfs_chunk WHERE inode=?1 AND indx=?2", [id(*ino), i64::from(*index)])?
            }
            Key::SliceRef(slice, size) => self.run(
                "DELETE FROM jfs_chunk_ref WHERE chunkid=?1 AND size=?2",
                [*slice as i64, i64::from(*size)],
            )?,
            Key::DelFile(ino, length) => {
                self.run("DELETE FROM jfs_delfile WHERE inode=?1 AND length=?2", [id(*ino), *length as i64])?
            }
            Key::DelSlices(slice, time) => {
                self.run("DELETE FROM jfs_delslices WHERE chunkid=?1 AND deleted=?2", [*slice as i64, *time])?
            }
            Key::Acl(acl) => self.run("DELETE FROM jfs_acl WHERE id=?1", [*acl])?,
            Key::DirStat(ino) => self.run("DELETE FROM jfs_dir_stats WHERE inode=?1", [id(*ino)])?,
            Key::Quota(key) => match quota_columns(*key) {
                (0, ino) => self.run("DELETE FROM jfs_dir_quota WHERE inode=?1", [ino])?,
                (kind, of) => {
                    self.run("DELETE FROM jfs_user_group_quota WHERE qtype=?1 AND qkey=?2", [kind, of])?
                }
            },
            Key::Session(sid) => self.run("DELETE FROM jfs_session2 WHERE sid=?1", [*sid as i64])?,
            Key::Sustained(sid, ino) => {
                self.run("DELETE FROM jfs_sustained WHERE sid=?1 AND inode=?2", [*sid as i64, id(*ino)])?
            }
            Key::Flock(ino, owner) => self.run(
                "DELETE FROM jfs_flock WHERE inode=?1 AND sid=?2 AND owner=?3",
                [id(*ino), owner.sid as i64, owner.owner as i64],
            )?,
            Key::Plock(ino, owner) => self.run(
                "DELETE FROM jfs_plock WHERE inode=?1 AND sid=?2 AND owner=?3",
                [id(*ino), owner.sid as i64, owner.owner as i64],
            )?,
            Key::Detached(ino) => self.run("DELETE FROM jfs_detached_node WHERE inode=?1", [id(*ino)])?,
            Key::Writer(writer, lane) => self.run(
                "DELETE FROM sluice_writer WHERE writer=?1 AND lane=?2",
                [*writer as i64, i64::from(*lane)],
            )?,
            Key::Changes(writer, lane, slot) => self.run(
                "DELETE FROM sluice_changes WHERE writer=?1 AND lane=?2 AND slot=?3",
                [*writer as i64, i64::from(*lane), i64::from(*slot)],
            )?,
        };
        Ok(changed > 0)
    }

    pub(super) fn clear(&self, list: List) -> Result<(), EngineError> {
        match list {
            List::Xattrs(ino) => self.run("DELETE FROM jfs_xattr WHERE inode=?1", [id(ino)]),
            // Counted from the entries.
            List::Parents(_) => Ok(0),
            List::Flocks(ino) => self.run("DELETE FROM jfs_flock WHERE inode=?1", [id(ino)]),
            List::Plocks(ino) => self.run("DELETE FROM jfs_plock WHERE inode=?1", [id(ino)]),
            List::Chunks(ino, from, to) => self.run(
                "DELETE FROM jfs_chunk WHERE inode=?1 AND indx>=?2 AND indx<?3",
                [id(ino), i64::from(from), i64::from(to)],
            ),
            List::Lanes(writer) => self.run("DELETE FROM sluice_writer WHERE writer=?1", [writer as i64]),
            List::Changes(writer) => self.run("DELETE FROM sluice_changes WHERE writer=?1", [writer as i64]),
            List::Sustained(_) | List::LocksOf(_) => {
                Err(self.reader.options.refused(format!("{list:?} cannot be cleared")))
            }
        }
        .map(drop)
    }
}
