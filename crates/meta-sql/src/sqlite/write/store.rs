//! Rows inserted or replaced, one statement each.
//!
//! What must stay true: a replaced row keeps the columns that others added to the table, so rows
//! are updated in place and never deleted and made again.

use rusqlite::params;
use sluice_meta::{
    engine::EngineError,
    schema::{
        AclRule, Counter, Quota, QuotaKey, Row, encode_changes, encode_plocks, encode_replaced, encode_slices,
    },
};

use super::{
    super::read::{borrowed, id, text_or_bytes},
    Writing,
};
use crate::values::{node_values, quota_columns};

/// Runs an insert, which replaces what exists if `$put` says so.
macro_rules! store {
    ($self:ident, $put:ident, $row:expr, $insert:literal, $update:literal, $params:expr) => {
        if $put {
            $self.run(concat!("INSERT INTO ", $insert, " ON CONFLICT", $update), $params).map(drop)
        } else {
            $self.insert_one(concat!("INSERT INTO ", $insert), $params, $row)
        }
    };
}

impl Writing<'_, '_> {
    /// Inserts a row, or replaces it if `put`.
    pub(super) fn store(&self, row: &Row, put: bool) -> Result<(), EngineError> {
        match row {
            Row::Setting(json) => store!(
                self,
                put,
                row,
                "jfs_setting(name,value) VALUES('format',?1)",
                "(name) DO UPDATE SET value=excluded.value",
                [String::from_utf8_lossy(json)]
            ),
            // The table of the rules numbers itself, and parents are counted from the entries.
            Row::Counter(Counter::AclMaxId, _) | Row::Parents(..) => Ok(()),
            Row::Counter(counter, value) => store!(
                self,
                put,
                row,
                "jfs_counter(name,value) VALUES(?1,?2)",
                "(name) DO UPDATE SET value=excluded.value",
                params![counter.name(), value]
            ),
            Row::Node(ino, attr) => store!(
                self,
                put,
                row,
                "jfs_node(inode,type,flags,mode,uid,gid,atime,mtime,ctime,atimensec,mtimensec,ctimensec,nlink,length,\
                 rdev,parent,access_acl_id,default_acl_id,tier_id) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                "(inode) DO UPDATE SET type=excluded.type,flags=excluded.flags,mode=excluded.mode,uid=excluded.uid,\
                 gid=excluded.gid,atime=excluded.atime,mtime=excluded.mtime,ctime=excluded.ctime,\
                 atimensec=excluded.atimensec,mtimensec=excluded.mtimensec,ctimensec=excluded.ctimensec,\
                 nlink=excluded.nlink,length=excluded.length,rdev=excluded.rdev,parent=excluded.parent,\
                 access_acl_id=excluded.access_acl_id,default_acl_id=excluded.default_acl_id,\
                 tier_id=excluded.tier_id",
                node_values(*ino, attr)
            ),
            Row::Entry(dir, name, entry) => store!(
                self,
                put,
                row,
                "jfs_edge(parent,name,inode,type) VALUES(?1,?2,?3,?4)",
                "(parent,name) DO UPDATE SET inode=excluded.inode,type=excluded.type",
                params![id(*dir), &name[..], id(entry.ino), entry.kind as u8]
            ),
            Row::Symlink(ino, target) => store!(
                self,
                put,
                row,
                "jfs_symlink(inode,target) VALUES(?1,?2)",
                "(inode) DO UPDATE SET target=excluded.target",
                params![id(*ino), &target[..]]
            ),
            Row::Xattr(ino, name, value) => store!(
                self,
                put,
                row,
                "jfs_xattr(inode,name,value) VALUES(?1,?2,?3)",
                "(inode,name) DO UPDATE SET value=excluded.value",
                params![id(*ino), borrowed(text_or_bytes(name)), &value[..]]
            ),
            Row::Chunk(ino, index, slices) => store!(
                self,
                put,
                row,
                "jfs_chunk(inode,indx,slices) VALUES(?1,?2,?3)",
                "(inode,indx) DO UPDATE SET slices=excluded.slices",
                params![id(*ino), index, encode_slices(slices)]
            ),
            Row::SliceRef(slice, size, refs) => store!(
                self,
                put,
                row,
                "jfs_chunk_ref(chunkid,size,refs) VALUES(?1,?2,?3)",
                "(chunkid) DO UPDATE SET size=excluded.size,refs=excluded.refs",
                params![*slice as i64, size, refs]
            ),
            Row::DelFile(ino, length, time) => store!(
                self,
                put,
                row,
                "jfs_delfile(inode,length,expire) VALUES(?1,?2,?3)",
                "(inode) DO UPDATE SET length=excluded.length,expire=excluded.expire",
                [id(*ino), *length as i64, *time]
            ),
            Row::DelSlices(slice, time, replaced) => store!(
                self,
                put,
                row,
                "jfs_delslices(chunkid,deleted,slices) VALUES(?1,?2,?3)",
                "(chunkid) DO UPDATE SET deleted=excluded.deleted,slices=excluded.slices",
                params![*slice as i64, time, encode_replaced(replaced)]
            ),
            _ => self.store_rare(row, put),
        }
    }

    /// Those that few operations write.
    fn store_rare(&self, row: &Row, put: bool) -> Result<(), EngineError> {
        match row {
            Row::Acl(acl, rule) => store!(
                self,
                put,
                row,
                "jfs_acl(id,owner,`group`,mask,other,named_users,named_groups) VALUES(?1,?2,?3,?4,?5,?6,?7)",
                "(id) DO UPDATE SET owner=excluded.owner,`group`=excluded.`group`,mask=excluded.mask,\
                 other=excluded.other,named_users=excluded.named_users,named_groups=excluded.named_groups",
                params![
                    acl,
                    rule.owner,
                    rule.group,
                    rule.mask,
                    rule.other,
                    AclRule::encode_entries(&rule.users),
                    AclRule::encode_entries(&rule.groups)
                ]
            ),
            Row::DirStat(ino, stat) => store!(
                self,
                put,
                row,
                "jfs_dir_stats(inode,data_length,used_space,used_inodes) VALUES(?1,?2,?3,?4)",
                "(inode) DO UPDATE SET data_length=excluded.data_length,used_space=excluded.used_space,\
                 used_inodes=excluded.used_inodes",
                [id(*ino), stat.length, stat.space, stat.inodes]
            ),
            Row::Quota(key, quota) => self.store_quota(row, *key, quota, put),
            Row::Session(sid, session) => store!(
                self,
                put,
                row,
                "jfs_session2(sid,expire,info) VALUES(?1,?2,?3)",
                "(sid) DO UPDATE SET expire=excluded.expire,info=excluded.info",
                params![*sid as i64, session.expire, session.info.as_deref()]
            ),
            Row::Sustained(sid, ino) => store!(
                self,
                put,
                row,
                "jfs_sustained(sid,inode) VALUES(?1,?2)",
                "(sid,inode) DO NOTHING",
                [*sid as i64, id(*ino)]
            ),
            Row::Flock(ino, owner, kind) => store!(
                self,
                put,
                row,
                "jfs_flock(inode,sid,owner,ltype) VALUES(?1,?2,?3,?4)",
                "(inode,sid,owner) DO UPDATE SET ltype=excluded.ltype",
                [id(*ino), owner.sid as i64, owner.owner as i64, i64::from(kind.code())]
            ),
            Row::Plock(ino, owner, ranges) => store!(
                self,
                put,
                row,
                "jfs_plock(inode,sid,owner,records) VALUES(?1,?2,?3,?4)",
                "(inode,sid,owner) DO UPDATE SET records=excluded.records",
                params![id(*ino), owner.sid as i64, owner.owner as i64, encode_plocks(ranges)]
            ),
            Row::Detached(ino, time) => store!(
                self,
                put,
                row,
                "jfs_detached_node(inode,added) VALUES(?1,?2)",
                "(inode) DO UPDATE SET added=excluded.added",
                [id(*ino), *time]
            ),
            Row::Writer(writer, lane, n) => store!(
                self,
                put,
                row,
                "sluice_writer(writer,lane,n) VALUES(?1,?2,?3)",
                "(writer,lane) DO UPDATE SET n=excluded.n",
                [*writer as i64, i64::from(*lane), *n as i64]
            ),
            Row::Changes(writer, lane, slot, n, changes) => store!(
                self,
                put,
                row,
                "sluice_changes(writer,lane,slot,n,changes) VALUES(?1,?2,?3,?4,?5)",
                "(writer,lane,slot) DO UPDATE SET n=excluded.n,changes=excluded.changes",
                params![
                    *writer as i64,
                    i64::from(*lane),
                    i64::from(*slot),
                    *n as i64,
                    encode_changes(changes)
                ]
            ),
            other => Err(self.reader.options.refused(format!("{:?} has no table", other.key()))),
        }
    }

    fn store_quota(&self, row: &Row, key: QuotaKey, quota: &Quota, put: bool) -> Result<(), EngineError> {
        let (kind, of) = quota_columns(key);
        let (space, inodes) = (quota.max_space, quota.max_inodes);
        let (used_space, used_inodes) = (quota.used_space, quota.used_inodes);
        if matches!(key, QuotaKey::Dir(_)) {
            store!(
                self,
                put,
                row,
                "jfs_dir_quota(inode,max_space,max_inodes,used_space,used_inodes) VALUES(?1,?2,?3,?4,?5)",
                "(inode) DO UPDATE SET max_space=excluded.max_space,max_inodes=excluded.max_inodes,\
                         used_space=excluded.used_space,used_inodes=excluded.used_inodes",
                [of, space, inodes, used_space, used_inodes]
            )
        } else {
            store!(
                self,
                put,
                row,
                "jfs_user_group_quota(qtype,qkey,max_space,max_inodes,used_space,used_inodes) \
                         VALUES(?1,?2,?3,?4,?5,?6)",
                "(qtype,qkey) DO UPDATE SET max_space=excluded.max_space,max_inodes=excluded.max_inodes,\
                         used_space=excluded.used_space,used_inodes=excluded.used_inodes",
                [kind, of, space, inodes, used_space, used_inodes]
            )
        }
    }
}
