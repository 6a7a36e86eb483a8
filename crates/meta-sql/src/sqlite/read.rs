//! Answers to reads: one statement each.
//!
//! What must stay true: an answer says what the tables hold and decides nothing. Parents are not
//! stored in SQL; they are counted from the entries that name the inode.

use rusqlite::{CachedStatement, Params, params, types::ValueRef};
use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::{Counter, Key, QuotaKey, Row},
};
use sluice_types::{Ino, Name};

use super::{error::is_missing_table, options::Options, statements::Statements};
use crate::{
    codec::{Columns, Damage, ENTRY_COLUMNS, Record, columns, decode},
    values::quota_columns,
};

/// A record and the statement that reads it.
macro_rules! select {
    ($record:ident, $rest:literal) => {
        (Record::$record, concat!("SELECT ", columns!($record), " ", $rest))
    };
}

/// A statement that reads entries and the nodes they name.
macro_rules! join {
    ($rest:literal) => {
        concat!(
            "SELECT e.parent,e.name,e.inode,e.type,n.inode,n.type,flags,mode,uid,gid,atime,mtime,ctime,",
            "atimensec,mtimensec,ctimensec,nlink,length,rdev,n.parent,access_acl_id,default_acl_id,tier_id ",
            "FROM jfs_edge e LEFT JOIN jfs_node n ON n.inode=e.inode ",
            $rest
        )
    };
}
pub(super) use join;

/// A row of SQLite.
pub(super) struct Columned<'r, 's>(pub(super) &'r rusqlite::Row<'s>);

impl Columns for Columned<'_, '_> {
    fn int(&self, at: usize) -> Result<i64, String> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Integer(number)) => Ok(number),
            Ok(ValueRef::Null) => Ok(0),
            Ok(other) => Err(format!("column {at} holds {}, not a number", other.data_type())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn bytes(&self, at: usize) -> Result<&[u8], String> {
        match self.0.get_ref(at) {
            Ok(ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => Ok(bytes),
            Ok(ValueRef::Null) => Ok(&[]),
            Ok(other) => Err(format!("column {at} holds {}, not bytes", other.data_type())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Reads on one connection.
#[derive(Clone, Copy)]
pub(super) struct Reader<'s, 'c> {
    pub(super) statements: &'s Statements<'c>,
    pub(super) options: &'c Options,
}

/// How an xattr's name is stored: as text, which JuiceFS can read, unless it is none.
pub(super) fn text_or_bytes(name: &[u8]) -> ValueRef<'_> {
    if std::str::from_utf8(name).is_ok() { ValueRef::Text(name) } else { ValueRef::Blob(name) }
}

impl<'s, 'c> Reader<'s, 'c> {
    pub(super) fn new(statements: &'s Statements<'c>) -> Self {
        Self { statements, options: statements.options }
    }

    /// Answers to several reads.
    pub(super) fn answers(self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let xattrs = |read: &Read| matches!(read, Read::All(List::Xattrs(_)));
        let none = self.without_xattrs(reads.iter().filter(|read| xattrs(read)).count())?;
        // Collected, it would grow and move many times.
        let mut found = Vec::with_capacity(reads.len());
        for read in reads {
            found.push(if none && xattrs(read) { Found::Rows(Vec::new()) } else { self.answer(read)? });
        }
        Ok(found)
    }

    /// Whether there are no extended attributes at all, as in most volumes. Asked only for `count`
    /// questions that it would save, if they are more than it costs.
    pub(super) fn without_xattrs(self, count: usize) -> Result<bool, EngineError> {
        Ok(count >= 4 && self.number("SELECT 1 FROM jfs_xattr LIMIT 1", [])?.is_none())
    }

    pub(super) fn answer(self, read: &Read) -> Result<Found, EngineError> {
        Ok(match read {
            Read::Get(key) => Found::Row(self.get(key)?),
            Read::Follow(dir, name) => Found::Rows(self.follow(*dir, name)?),
            Read::Names { dir, limit } => Found::Names(self.names(*dir, *limit)?),
            Read::All(list) => Found::Rows(self.all(*list)?),
        })
    }

    /// Hands each row of a result to `take`.
    pub(super) fn each(
        self,
        sql: &'static str,
        params: impl Params,
        mut take: impl FnMut(Columned<'_, '_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let failed = |error| self.options.failed(&error);
        let read = |statement: &mut CachedStatement<'_>| {
            let mut rows = statement.query(params).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                take(Columned(row)).map_err(|damage| self.options.damaged(damage))?;
            }
            Ok(())
        };
        self.statements.with(sql, read).map_err(failed)?
    }

    pub(super) fn many(
        self,
        (record, sql): (Record, &'static str),
        params: impl Params,
    ) -> Result<Vec<Row>, EngineError> {
        let mut found = Vec::new();
        self.each(sql, params, |row| {
            found.push(decode(record, &row, 0)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn one(self, select: (Record, &'static str), params: impl Params) -> Result<Option<Row>, EngineError> {
        Ok(self.many(select, params)?.pop())
    }

    fn number(self, sql: &'static str, params: impl Params) -> Result<Option<i64>, EngineError> {
        let mut found = None;
        self.each(sql, params, |row| {
            let damage = |reason| Damage { record: "counter".into(), reason };
            found = Some(row.int(0).map_err(damage)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// One record.
    pub(super) fn get(self, key: &Key) -> Result<Option<Row>, EngineError> {
        match key {
            Key::Setting => self.setting(),
            Key::Counter(counter) => self.counter(*counter),
            Key::Node(ino) => self.one(select!(Node, "FROM jfs_node WHERE inode=?1"), [id(*ino)]),
            Key::Entry(dir, name) => self.one(
                select!(Entry, "FROM jfs_edge WHERE parent=?1 AND name=?2"),
                params![id(*dir), &name[..]],
            ),
            Key::Parents(ino, parent) => self.one(
                select!(Parents, "FROM jfs_edge WHERE inode=?1 AND parent=?2 GROUP BY inode,parent"),
                [id(*ino), id(*parent)],
            ),
            Key::Symlink(ino) => self.one(select!(Symlink, "FROM jfs_symlink WHERE inode=?1"), [id(*ino)]),
            Key::Xattr(ino, name) => self.one(
                select!(Xattr, "FROM jfs_xattr WHERE inode=?1 AND name=?2"),
                params![id(*ino), borrowed(text_or_bytes(name))],
            ),
            Key::Chunk(ino, index) => self.one(
                select!(Chunk, "FROM jfs_chunk WHERE inode=?1 AND indx=?2"),
                [id(*ino), i64::from(*index)],
            ),
            Key::SliceRef(slice, size) => self.one(
                select!(SliceRef, "FROM jfs_chunk_ref WHERE chunkid=?1 AND size=?2"),
                [*slice as i64, i64::from(*size)],
            ),
            Key::DelFile(ino, length) => self.one(
                select!(DelFile, "FROM jfs_delfile WHERE inode=?1 AND length=?2"),
                [id(*ino), *length as i64],
            ),
            Key::DelSlices(slice, time) => self.one(
                select!(DelSlices, "FROM jfs_delslices WHERE chunkid=?1 AND deleted=?2"),
                [*slice as i64, *time],
            ),
            Key::Acl(acl) => self.one(select!(Acl, "FROM jfs_acl WHERE id=?1"), [*acl]),
            Key::DirStat(ino) => self.one(select!(DirStat, "FROM jfs_dir_stats WHERE inode=?1"), [id(*ino)]),
            Key::Quota(key) => self.quota(*key),
            Key::Session(sid) => self.one(select!(Session, "FROM jfs_session2 WHERE sid=?1"), [*sid as i64]),
            Key::Sustained(sid, ino) => self.one(
                select!(Sustained, "FROM jfs_sustained WHERE sid=?1 AND inode=?2"),
                [*sid as i64, id(*ino)],
            ),
            Key::Flock(ino, owner) => self.one(
                select!(Flock, "FROM jfs_flock WHERE inode=?1 AND sid=?2 AND owner=?3"),
                [id(*ino), owner.sid as i64, owner.owner as i64],
            ),
            Key::Plock(ino, owner) => self.one(
                select!(Plock, "FROM jfs_plock WHERE inode=?1 AND sid=?2 AND owner=?3"),
                [id(*ino), owner.sid as i64, owner.owner as i64],
            ),
            Key::Detached(ino) => {
                self.one(select!(Detached, "FROM jfs_detached_node WHERE inode=?1"), [id(*ino)])
            }
            Key::Writer(writer, lane) => self.one(
                select!(Writer, "FROM sluice_writer WHERE writer=?1 AND lane=?2"),
                [*writer as i64, i64::from(*lane)],
            ),
            Key::Changes(writer, lane, slot) => self.one(
                select!(Changes, "FROM sluice_changes WHERE writer=?1 AND lane=?2 AND slot=?3"),
                [*writer as i64, i64::from(*lane), i64::from(*slot)],
            ),
        }
    }

    /// The settings; none in a database that is no volume yet, so that the caller can say so.
    fn setting(self) -> Result<Option<Row>, EngineError> {
        let (record, sql) = select!(Setting, "FROM jfs_setting WHERE name='format'");
        match self.statements.with(sql, |_| ()) {
            Err(error) if is_missing_table(&error) => Ok(None),
            _ => self.one((record, sql), []),
        }
    }

    fn counter(self, counter: Counter) -> Result<Option<Row>, EngineError> {
        let value = match counter {
            Counter::AclMaxId => self.number("SELECT max(id) FROM jfs_acl", [])?,
            _ => self.number("SELECT value FROM jfs_counter WHERE name=?1", [counter.name()])?,
        };
        Ok(value.map(|value| Row::Counter(counter, value)))
    }

    fn quota(self, key: QuotaKey) -> Result<Option<Row>, EngineError> {
        let (kind, of) = quota_columns(key);
        if kind == 0 {
            return self.one(select!(DirQuota, "FROM jfs_dir_quota WHERE inode=?1"), [of]);
        }
        self.one(select!(Quota, "FROM jfs_user_group_quota WHERE qtype=?1 AND qkey=?2"), [kind, of])
    }

    fn follow(self, dir: Ino, name: &Name) -> Result<Vec<Row>, EngineError> {
        let mut found = Vec::with_capacity(2);
        self.each(join!("WHERE e.parent=?1 AND e.name=?2"), params![id(dir), &name[..]], |row| {
            take_joined(&row, &mut found)
        })?;
        Ok(found)
    }

    pub(super) fn names(self, dir: Ino, limit: usize) -> Result<Vec<Name>, EngineError> {
        let mut found = Vec::new();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.each("SELECT name FROM jfs_edge WHERE parent=?1 LIMIT ?2", [id(dir), limit], |row| {
            let damage = |reason| Damage { record: format!("edge {dir}"), reason };
            found.push(Name::stored(row.bytes(0).map_err(damage)?));
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn all(self, list: List) -> Result<Vec<Row>, EngineError> {
        match list {
            List::Xattrs(ino) => self.many(select!(Xattr, "FROM jfs_xattr WHERE inode=?1"), [id(ino)]),
            List::Parents(ino) => {
                self.many(select!(Parents, "FROM jfs_edge WHERE inode=?1 GROUP BY inode,parent"), [id(ino)])
            }
            List::Flocks(ino) => self.many(select!(Flock, "FROM jfs_flock WHERE inode=?1"), [id(ino)]),
            List::Plocks(ino) => self.many(select!(Plock, "FROM jfs_plock WHERE inode=?1"), [id(ino)]),
            List::Chunks(ino, from, to) => self.many(
                select!(Chunk, "FROM jfs_chunk WHERE inode=?1 AND indx>=?2 AND indx<?3 ORDER BY indx"),
                [id(ino), i64::from(from), i64::from(to)],
            ),
            List::Sustained(sid) => {
                self.many(select!(Sustained, "FROM jfs_sustained WHERE sid=?1"), [sid as i64])
            }
            List::LocksOf(sid) => {
                let mut locks = self.many(select!(Flock, "FROM jfs_flock WHERE sid=?1"), [sid as i64])?;
                locks.extend(self.many(select!(Plock, "FROM jfs_plock WHERE sid=?1"), [sid as i64])?);
                Ok(locks)
            }
            List::Lanes(writer) => {
                self.many(select!(Writer, "FROM sluice_writer WHERE writer=?1"), [writer as i64])
            }
            List::Changes(writer) => {
                self.many(select!(Changes, "FROM sluice_changes WHERE writer=?1"), [writer as i64])
            }
        }
    }
}

/// Takes an entry and, if it exists, its node from a joined row.
pub(super) fn take_joined(row: &Columned<'_, '_>, found: &mut Vec<Row>) -> Result<(), Damage> {
    found.push(decode(Record::Entry, row, 0)?);
    if let Some(node) = joined_node(row) {
        found.push(node?);
    }
    Ok(())
}

/// The node of a joined row, if it exists.
pub(super) fn joined_node(row: &Columned<'_, '_>) -> Option<Result<Row, Damage>> {
    let exists = !matches!(row.0.get_ref(ENTRY_COLUMNS), Ok(ValueRef::Null));
    exists.then(|| decode(Record::Node, row, ENTRY_COLUMNS))
}

/// An inode as its column holds it.
pub(super) const fn id(ino: Ino) -> i64 {
    ino.0 as i64
}

/// A borrowed value as a parameter.
pub(super) const fn borrowed(value: ValueRef<'_>) -> rusqlite::types::ToSqlOutput<'_> {
    rusqlite::types::ToSqlOutput::Borrowed(value)
}
