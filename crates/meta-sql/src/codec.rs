//! Decodes rows of the volume's tables to records, for every SQL database; `values` encodes.
//!
//! What must stay true: times are microseconds plus 0 to 999 nanoseconds, ids and owners keep their
//! bits in a signed column of 64 or 32 bits, and a NULL (in a column that was added after the row)
//! is read as 0 or as empty.

use bytes::Bytes;
use sluice_meta::{
    engine::EngineError,
    schema::{
        AclRule, Counter, DirStat, Entry, Extra, FlockKind, LockOwner, Opaque, Quota, QuotaKey, Row, Session,
        decode_changes, decode_plocks, decode_replaced, decode_slices,
    },
};
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Time};

use crate::{
    schema::{Column, OWN, TABLES, Table},
    volume::Volume,
};

/// One row of a result.
pub(crate) trait Columns {
    /// A number; 0 for NULL.
    fn int(&self, at: usize) -> Result<i64, String>;
    /// Bytes or text; empty for NULL.
    fn bytes(&self, at: usize) -> Result<&[u8], String>;
    /// Whether it is NULL.
    fn is_null(&self, at: usize) -> bool;
}

/// A row that breaks the format.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Table and key.
    pub(crate) record: String,
    /// What is wrong with it.
    pub(crate) reason: String,
}

impl Volume {
    /// The error for a row that breaks the format.
    pub(crate) fn damaged(&self, damage: Damage) -> EngineError {
        self.corrupt(format!("{}{}", self.prefix(), damage.record), damage.reason)
    }
}

/// Number of columns of an entry, after which a join has the columns of its node.
const ENTRY_COLUMNS: usize = 4;

/// `qtype` of the quota of a user.
pub(crate) const USER: i64 = 1;
/// `qtype` of the quota of a group.
pub(crate) const GROUP: i64 = 2;

/// The table and columns of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Its table, with the usual prefix.
    pub(crate) table: &'static str,
    /// Its columns, as [`decode`] takes them; names that are reserved words in backticks.
    pub(crate) columns: &'static str,
    /// How many of the columns lead a unique key.
    pub(crate) unique: usize,
    /// How many of the columns the [`Key`](sluice_meta::schema::Key) determines.
    pub(crate) named: usize,
}

/// Declares the records: name, table, how many of the columns lead a unique key, how many the
/// [`Key`](sluice_meta::schema::Key) names, and the columns, those first.
macro_rules! records {
    ($($record:ident: $table:literal, $unique:literal, $named:literal, $columns:literal;)*) => {
        /// Which record a result holds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Record {
            $($record,)*
        }

        impl Record {
            /// All of them, each at the place of its number.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$record,)*];

            /// Its table and columns. Parents are counted from the entries.
            pub(crate) const fn shape(self) -> Shape {
                match self {
                    $(Self::$record => {
                        Shape { table: $table, columns: $columns, unique: $unique, named: $named }
                    })*
                }
            }
        }
    };
}

records! {
    Setting: "jfs_setting", 1, 1, "name,value";
    Counter: "jfs_counter", 1, 1, "name,value";
    Node: "jfs_node", 1, 1, "inode,type,flags,mode,uid,gid,atime,mtime,ctime,atimensec,mtimensec,\
        ctimensec,nlink,length,rdev,parent,access_acl_id,default_acl_id,tier_id";
    Entry: "jfs_edge", 2, 2, "parent,name,inode,type";
    Parents: "jfs_edge", 0, 2, "inode,parent,count(*)";
    Symlink: "jfs_symlink", 1, 1, "inode,target";
    Xattr: "jfs_xattr", 2, 2, "inode,name,value";
    Chunk: "jfs_chunk", 2, 2, "inode,indx,slices";
    SliceRef: "jfs_chunk_ref", 1, 2, "chunkid,size,refs";
    DelFile: "jfs_delfile", 1, 2, "inode,length,expire";
    DelSlices: "jfs_delslices", 1, 2, "chunkid,deleted,slices";
    Acl: "jfs_acl", 1, 1, "id,owner,`group`,mask,other,named_users,named_groups";
    DirStat: "jfs_dir_stats", 1, 1, "inode,data_length,used_space,used_inodes";
    DirQuota: "jfs_dir_quota", 1, 1, "inode,max_space,max_inodes,used_space,used_inodes";
    Quota: "jfs_user_group_quota", 2, 2, "qtype,qkey,max_space,max_inodes,used_space,used_inodes";
    Session: "jfs_session2", 1, 1, "sid,expire,info";
    Sustained: "jfs_sustained", 2, 2, "sid,inode";
    Flock: "jfs_flock", 3, 3, "inode,sid,owner,ltype";
    Plock: "jfs_plock", 3, 3, "inode,sid,owner,records";
    Detached: "jfs_detached_node", 1, 1, "inode,added";
    Writer: "sluice_writer", 2, 2, "writer,lane,n";
    Changes: "sluice_changes", 3, 3, "writer,lane,slot,n,changes";
    Extra: "sluice_extra", 2, 2, "kind,id,value";
    Line: "jfs_change_log", 1, 1, "id,entry";
}

impl Record {
    /// Its table.
    pub(crate) fn table(self) -> Option<&'static Table> {
        let name = self.shape().table;
        let called = |prefix| move |table: &&Table| name.strip_prefix(prefix) == Some(table.name);
        TABLES.iter().find(called("jfs_")).or_else(|| OWN.iter().find(called("sluice_")))
    }

    /// Its columns, named as they stand in a statement, without what is computed.
    pub(crate) fn columns(self) -> Vec<Column> {
        let all = self.table().map_or(&[][..], |table| table.columns);
        let column = |name: &'static str| {
            let column = all.iter().find(|column| column.name == name.trim_matches('`'))?;
            Some(Column { name, ..*column })
        };
        self.shape().columns.split(',').filter_map(column).collect()
    }

    /// The column that numbers the rows of its table, by which they are read page by page.
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::Entry | Self::Chunk | Self::Xattr | Self::Sustained => "id",
            _ => self.shape().columns.split(',').next().unwrap_or_default(),
        }
    }

    /// Its columns, each after `of`.
    pub(crate) fn columns_of(self, of: &str) -> String {
        let columns = self.shape().columns.split(',');
        columns.map(|column| format!("{of}{column}")).collect::<Vec<_>>().join(",")
    }
}

/// Columns of an entry `e` and its node `n`, as [`decode_joined`] takes them.
pub(crate) fn joined_columns() -> String {
    format!("{},{}", Record::Entry.columns_of("e."), Record::Node.columns_of("n."))
}

/// Passes the entry in a row, from column `at` on, to `take`, and then its node, if it exists.
pub(crate) fn decode_joined(row: &impl Columns, at: usize, mut take: impl FnMut(Row)) -> Result<(), Damage> {
    take(decode(Record::Entry, row, at)?);
    decode_node(row, at).map_or(Ok(()), |node| node.map(take))
}

/// The node of a row that holds an entry from column `at` on, if it exists.
pub(crate) fn decode_node(row: &impl Columns, at: usize) -> Option<Result<Row, Damage>> {
    let at = at + ENTRY_COLUMNS;
    (!row.is_null(at)).then(|| decode(Record::Node, row, at))
}

/// The record that a row holds from column `at` on.
pub(crate) fn decode(record: Record, row: &impl Columns, at: usize) -> Result<Row, Damage> {
    read(record, &Shifted { row, by: at }).map_err(|reason| {
        let shape = record.shape();
        let key: Vec<String> = (at..at + shape.unique.max(1))
            .map(|at| match (row.int(at), row.bytes(at)) {
                (Ok(number), _) => number.to_string(),
                (_, Ok(bytes)) => bytes.escape_ascii().to_string(),
                _ => "?".into(),
            })
            .collect();
        let table = shape.table.trim_start_matches("jfs_").trim_start_matches("sluice_");
        Damage { record: format!("{table} {}", key.join(" ")), reason }
    })
}

struct Shifted<'r, C> {
    row: &'r C,
    by: usize,
}

impl<C: Columns> Shifted<'_, C> {
    fn int(&self, at: usize) -> Result<i64, String> {
        self.row.int(at + self.by)
    }

    fn id(&self, at: usize) -> Result<u64, String> {
        Ok(self.int(at)? as u64)
    }

    fn ino(&self, at: usize) -> Result<Ino, String> {
        self.id(at).map(Ino)
    }

    fn bytes(&self, at: usize) -> Result<&[u8], String> {
        self.row.bytes(at + self.by)
    }

    fn owner(&self, at: usize) -> Result<LockOwner, String> {
        Ok(LockOwner { sid: self.id(at)?, owner: self.id(at + 1)? })
    }

    /// A number that stands for one of a few values.
    fn coded<T>(&self, at: usize, what: &str, from: fn(u8) -> Option<T>) -> Result<T, String> {
        let code = self.int(at)?;
        u8::try_from(code).ok().and_then(from).ok_or_else(|| format!("{code} is no {what}"))
    }

    fn kind(&self, at: usize) -> Result<FileType, String> {
        self.coded(at, "type of a node", FileType::from_code)
    }

    /// A list of records in one value.
    fn list<T>(&self, at: usize, of: &str, decode: fn(&[u8]) -> Option<T>) -> Result<T, String> {
        let bytes = self.bytes(at)?;
        decode(bytes).ok_or_else(|| format!("its {} bytes are no list of {of}", bytes.len()))
    }
}

/// A description that is written already.
fn written(info: &[u8]) -> Option<Bytes> {
    (!info.is_empty()).then(|| Bytes::copy_from_slice(info))
}

fn read<C: Columns>(record: Record, row: &Shifted<'_, C>) -> Result<Row, String> {
    Ok(match record {
        Record::Setting => Row::Setting(Bytes::copy_from_slice(row.bytes(1)?)),
        Record::Counter => {
            let name = row.bytes(0)?;
            let counter = Counter::ALL.into_iter().find(|counter| counter.name().as_bytes() == name);
            Row::Counter(counter.ok_or("no counter has that name")?, row.int(1)?)
        }
        Record::Node => Row::Node(row.ino(0)?, read_attr(row)?),
        Record::Entry => Row::Entry(
            row.ino(0)?,
            Name::stored(row.bytes(1)?),
            Entry { ino: row.ino(2)?, kind: row.kind(3)? },
        ),
        Record::Parents => Row::Parents(row.ino(0)?, row.ino(1)?, row.int(2)?),
        Record::Symlink => Row::Symlink(row.ino(0)?, Bytes::copy_from_slice(row.bytes(1)?)),
        Record::Xattr => {
            Row::Xattr(row.ino(0)?, Name::stored(row.bytes(1)?), Bytes::copy_from_slice(row.bytes(2)?))
        }
        Record::Chunk => Row::Chunk(row.ino(0)?, row.int(1)? as u32, row.list(2, "slices", decode_slices)?),
        Record::SliceRef => Row::SliceRef(row.id(0)?, row.int(1)? as u32, row.int(2)?),
        Record::DelFile => Row::DelFile(row.ino(0)?, row.id(1)?, row.int(2)?),
        Record::DelSlices => {
            Row::DelSlices(row.id(0)?, row.int(1)?, row.list(2, "replaced slices", decode_replaced)?)
        }
        Record::Acl => Row::Acl(row.int(0)? as u32, read_acl(row)?),
        Record::DirStat => Row::DirStat(
            row.ino(0)?,
            DirStat { length: row.int(1)?, space: row.int(2)?, inodes: row.int(3)? },
        ),
        Record::DirQuota => Row::Quota(QuotaKey::Dir(row.ino(0)?), read_quota(row, 1)?),
        Record::Quota => Row::Quota(read_quota_key(row)?, read_quota(row, 2)?),
        Record::Session => {
            Row::Session(row.id(0)?, Session { expire: row.int(1)?, info: written(row.bytes(2)?) })
        }
        Record::Sustained => Row::Sustained(row.id(0)?, row.ino(1)?),
        Record::Flock => {
            Row::Flock(row.ino(0)?, row.owner(1)?, row.coded(3, "kind of a lock", FlockKind::from_code)?)
        }
        Record::Plock => Row::Plock(row.ino(0)?, row.owner(1)?, row.list(3, "lock ranges", decode_plocks)?),
        Record::Detached => Row::Detached(row.ino(0)?, row.int(1)?),
        Record::Writer => Row::Writer(row.id(0)?, row.int(1)? as u16, row.id(2)?),
        Record::Changes => Row::Changes(
            row.id(0)?,
            row.int(1)? as u16,
            row.int(2)? as u16,
            row.id(3)?,
            decode_changes(row.bytes(4)?),
        ),
        Record::Extra => {
            let value = Opaque(Bytes::copy_from_slice(row.bytes(2)?));
            Row::Extra(row.coded(0, "kind of a record", Extra::from_code)?, row.id(1)?, value)
        }
        Record::Line => return Err("a line of the change log is no record".into()),
    })
}

fn read_attr<C: Columns>(row: &Shifted<'_, C>) -> Result<Attr, String> {
    let time = |micros, nanos| Ok::<_, String>(time_of(row.int(micros)?, row.int(nanos)?));
    Ok(Attr {
        flags: AttrFlags(row.int(2)? as u8),
        kind: row.kind(1)?,
        mode: row.int(3)? as u16,
        uid: row.int(4)? as u32,
        gid: row.int(5)? as u32,
        atime: time(6, 9)?,
        mtime: time(7, 10)?,
        ctime: time(8, 11)?,
        nlink: row.int(12)? as u32,
        length: row.id(13)?,
        rdev: row.int(14)? as u32,
        parent: row.ino(15)?,
        access_acl: row.int(16)? as u32,
        default_acl: row.int(17)? as u32,
        tier: row.int(18)? as u8,
    })
}

const fn time_of(micros: i64, nanos: i64) -> Time {
    let rest = micros.rem_euclid(1_000_000) as u32 * 1000;
    Time { sec: micros.div_euclid(1_000_000), nsec: rest + nanos.rem_euclid(1000) as u32 }
}

fn read_acl<C: Columns>(row: &Shifted<'_, C>) -> Result<AclRule, String> {
    let named = |at| row.list(at, "named users or groups", AclRule::decode_entries);
    Ok(AclRule {
        owner: row.int(1)? as u16,
        group: row.int(2)? as u16,
        mask: row.int(3)? as u16,
        other: row.int(4)? as u16,
        users: named(5)?,
        groups: named(6)?,
    })
}

fn read_quota<C: Columns>(row: &Shifted<'_, C>, at: usize) -> Result<Quota, String> {
    Ok(Quota {
        max_space: row.int(at)?,
        max_inodes: row.int(at + 1)?,
        used_space: row.int(at + 2)?,
        used_inodes: row.int(at + 3)?,
    })
}

fn read_quota_key<C: Columns>(row: &Shifted<'_, C>) -> Result<QuotaKey, String> {
    match row.int(0)? {
        USER => Ok(QuotaKey::User(row.int(1)? as u32)),
        GROUP => Ok(QuotaKey::Group(row.int(1)? as u32)),
        other => Err(format!("{other} is no type of a quota")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fit_the_tables() {
        for (at, record) in Record::ALL.iter().copied().enumerate() {
            assert_eq!(record as usize, at, "{record:?}");
            if record == Record::Parents {
                continue; // no rows of their own
            }
            let (shape, table) = (record.shape(), record.table().expect("a table"));
            let ours: Vec<&str> = shape.columns.split(',').map(|column| column.trim_matches('`')).collect();
            let theirs: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            let numbered = theirs[0] == "id" && ours[0] != "id";
            assert_eq!(ours, theirs[usize::from(numbered)..], "{record:?}");
            let unique = match table.unique {
                Some((_, columns)) => columns,
                None if table.primary.is_empty() => &["id"],
                None => table.primary,
            };
            assert_eq!(&ours[..shape.unique], unique, "{record:?}");
            assert!(shape.named >= shape.unique, "{record:?}");
        }
    }
}
