//! Rows of the volume's tables to records and back, for every SQL database.
//!
//! What must stay true: times are microseconds plus 0 to 999 nanoseconds, 64-bit ids and owners keep their bits in a
//! signed column, and a column that holds NULL (it was added after the row) reads as 0 or nothing.

use bytes::Bytes;
use sluice_meta::schema::{
    AclRule, DirStat, Entry, FlockKind, LockOwner, Quota, QuotaKey, Row, Session, SessionInfo, VolumeFormat,
    decode_plocks, decode_slices,
};
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Time};

/// One row of a result.
pub(crate) trait Columns {
    /// A number; 0 for NULL.
    fn int(&self, at: usize) -> Result<i64, String>;
    /// Bytes or text; empty for NULL.
    fn bytes(&self, at: usize) -> Result<&[u8], String>;
}

/// A row that breaks the format.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Table and key.
    pub(crate) record: String,
    /// What is wrong with it.
    pub(crate) reason: String,
}

/// Which record a result holds. The columns of each are listed by [`columns`](crate::codec::columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Setting,
    Node,
    Entry,
    Parents,
    Symlink,
    Xattr,
    Chunk,
    SliceRef,
    DelFile,
    DelSlices,
    Acl,
    DirStat,
    Quota,
    Session,
    Sustained,
    Flock,
    Plock,
    Detached,
    Writer,
}

/// Columns of a record in the order in which [`decode`] takes them, the key first.
macro_rules! columns {
    (Setting) => { "value" };
    (Node) => {
        "inode,type,flags,mode,uid,gid,atime,mtime,ctime,atimensec,mtimensec,ctimensec,nlink,length,rdev,parent,\
         access_acl_id,default_acl_id,tier_id"
    };
    (Entry) => { "parent,name,inode,type" };
    (Parents) => { "inode,parent,count(*)" };
    (Symlink) => { "inode,target" };
    (Xattr) => { "inode,name,value" };
    (Chunk) => { "inode,indx,slices" };
    (SliceRef) => { "chunkid,size,refs" };
    (DelFile) => { "inode,length,expire" };
    (DelSlices) => { "chunkid,deleted,slices" };
    (Acl) => { "id,owner,`group`,mask,other,named_users,named_groups" };
    (DirStat) => { "inode,data_length,used_space,used_inodes" };
    (DirQuota) => { "0,inode,max_space,max_inodes,used_space,used_inodes" };
    (Quota) => { "qtype,qkey,max_space,max_inodes,used_space,used_inodes" };
    (Session) => { "sid,expire,info" };
    (Sustained) => { "sid,inode" };
    (Flock) => { "inode,sid,owner,ltype" };
    (Plock) => { "inode,sid,owner,records" };
    (Detached) => { "inode,added" };
    (Writer) => { "writer,lane,n" };
}
pub(crate) use columns;

/// Number of columns of an entry, after which a join has the columns of its node.
pub(crate) const ENTRY_COLUMNS: usize = 4;

/// `qtype` of the quota of a user.
const USER: i64 = 1;
/// `qtype` of the quota of a group.
const GROUP: i64 = 2;

impl Record {
    const fn table(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Node => "node",
            Self::Entry | Self::Parents => "edge",
            Self::Symlink => "symlink",
            Self::Xattr => "xattr",
            Self::Chunk => "chunk",
            Self::SliceRef => "chunk_ref",
            Self::DelFile => "delfile",
            Self::DelSlices => "delslices",
            Self::Acl => "acl",
            Self::DirStat => "dir_stats",
            Self::Quota => "quota",
            Self::Session => "session2",
            Self::Sustained => "sustained",
            Self::Flock => "flock",
            Self::Plock => "plock",
            Self::Detached => "detached_node",
            Self::Writer => "writer",
        }
    }

    /// Number of leading columns that name the row.
    const fn key_columns(self) -> usize {
        match self {
            Self::Setting => 0,
            Self::Entry | Self::Parents | Self::Xattr | Self::Chunk | Self::Quota | Self::Writer => 2,
            Self::Flock | Self::Plock => 3,
            _ => 1,
        }
    }
}

/// The record that a row holds from column `at` on.
pub(crate) fn decode(record: Record, row: &impl Columns, at: usize) -> Result<Row, Damage> {
    read(record, &Shifted { row, by: at }).map_err(|reason| {
        let key: Vec<String> = (at..at + record.key_columns())
            .map(|at| match (row.int(at), row.bytes(at)) {
                (Ok(number), _) => number.to_string(),
                (_, Ok(bytes)) => bytes.escape_ascii().to_string(),
                _ => "?".into(),
            })
            .collect();
        Damage { record: format!("{} {}", record.table(), key.join(" ")), reason }
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

    fn kind(&self, at: usize) -> Result<FileType, String> {
        let code = self.int(at)?;
        u8::try_from(code)
            .ok()
            .and_then(FileType::from_code)
            .ok_or_else(|| format!("{code} is no type of a node"))
    }
}

fn read<C: Columns>(record: Record, row: &Shifted<'_, C>) -> Result<Row, String> {
    Ok(match record {
        Record::Setting => {
            Row::Setting(VolumeFormat::parse(row.bytes(0)?).map_err(|error| error.to_string())?.into())
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
        Record::Chunk => {
            let bytes = row.bytes(2)?;
            let slices = decode_slices(bytes).ok_or_else(|| broken_list("slices", bytes))?;
            Row::Chunk(row.ino(0)?, row.int(1)? as u32, slices)
        }
        Record::SliceRef => Row::SliceRef(row.id(0)?, row.int(1)? as u32, row.int(2)?),
        Record::DelFile => Row::DelFile(row.ino(0)?, row.id(1)?, row.int(2)?),
        Record::DelSlices => {
            let bytes = row.bytes(2)?;
            let slices = decode_replaced(bytes).ok_or_else(|| broken_list("replaced slices", bytes))?;
            Row::DelSlices(row.id(0)?, row.int(1)?, slices)
        }
        Record::Acl => Row::Acl(row.int(0)? as u32, read_acl(row)?),
        Record::DirStat => Row::DirStat(
            row.ino(0)?,
            DirStat { length: row.int(1)?, space: row.int(2)?, inodes: row.int(3)? },
        ),
        Record::Quota => Row::Quota(
            read_quota_key(row)?,
            Quota {
                max_space: row.int(2)?,
                max_inodes: row.int(3)?,
                used_space: row.int(4)?,
                used_inodes: row.int(5)?,
            },
        ),
        Record::Session => Row::Session(
            row.id(0)?,
            // A record that is not written yet or damaged is a session without a description.
            Session { expire: row.int(1)?, info: serde_json::from_slice::<SessionInfo>(row.bytes(2)?).ok() },
        ),
        Record::Sustained => Row::Sustained(row.id(0)?, row.ino(1)?),
        Record::Flock => {
            let code = row.int(3)?;
            let kind = u8::try_from(code).ok().and_then(FlockKind::from_code);
            Row::Flock(
                row.ino(0)?,
                row.owner(1)?,
                kind.ok_or_else(|| format!("{code} is no kind of a lock"))?,
            )
        }
        Record::Plock => {
            let bytes = row.bytes(3)?;
            let ranges = decode_plocks(bytes).ok_or_else(|| broken_list("lock ranges", bytes))?;
            Row::Plock(row.ino(0)?, row.owner(1)?, ranges)
        }
        Record::Detached => Row::Detached(row.ino(0)?, row.int(1)?),
        Record::Writer => Row::Writer(row.id(0)?, row.int(1)? as u16, row.id(2)?),
    })
}

fn broken_list(of: &str, bytes: &[u8]) -> String {
    format!("its {} bytes are no list of {of}", bytes.len())
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

/// Columns of a node.
pub(crate) const NODE_COLUMNS: usize = 19;

/// What the columns of a node hold, in the order of [`columns`].
pub(crate) fn node_values(ino: Ino, attr: &Attr) -> [i64; NODE_COLUMNS] {
    let (atime, atimensec) = time_columns(attr.atime);
    let (mtime, mtimensec) = time_columns(attr.mtime);
    let (ctime, ctimensec) = time_columns(attr.ctime);
    [
        ino.0 as i64,
        attr.kind as i64,
        i64::from(attr.flags.0),
        i64::from(attr.mode),
        i64::from(attr.uid),
        i64::from(attr.gid),
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        i64::from(attr.nlink),
        attr.length as i64,
        i64::from(attr.rdev),
        attr.parent.0 as i64,
        i64::from(attr.access_acl),
        i64::from(attr.default_acl),
        i64::from(attr.tier),
    ]
}

/// Microseconds, and the nanoseconds that remain.
pub(crate) const fn time_columns(time: Time) -> (i64, i64) {
    let micros = time.sec.saturating_mul(1_000_000).saturating_add((time.nsec / 1000) as i64);
    (micros, (time.nsec % 1000) as i64)
}

const fn time_of(micros: i64, nanos: i64) -> Time {
    let rest = micros.rem_euclid(1_000_000) as u32 * 1000;
    Time { sec: micros.div_euclid(1_000_000), nsec: rest + nanos.rem_euclid(1000) as u32 }
}

fn read_acl<C: Columns>(row: &Shifted<'_, C>) -> Result<AclRule, String> {
    let named = |at| {
        let bytes = row.bytes(at)?;
        AclRule::decode_entries(bytes).ok_or_else(|| broken_list("named users or groups", bytes))
    };
    Ok(AclRule {
        owner: row.int(1)? as u16,
        group: row.int(2)? as u16,
        mask: row.int(3)? as u16,
        other: row.int(4)? as u16,
        users: named(5)?,
        groups: named(6)?,
    })
}

/// `qtype` and `qkey` of a quota; 0 is the type of directories, which have a table of their own.
pub(crate) const fn quota_columns(key: QuotaKey) -> (i64, i64) {
    match key {
        QuotaKey::Dir(ino) => (0, ino.0 as i64),
        QuotaKey::User(uid) => (USER, uid as i64),
        QuotaKey::Group(gid) => (GROUP, gid as i64),
    }
}

fn read_quota_key<C: Columns>(row: &Shifted<'_, C>) -> Result<QuotaKey, String> {
    match row.int(0)? {
        0 => Ok(QuotaKey::Dir(row.ino(1)?)),
        USER => Ok(QuotaKey::User(row.int(1)? as u32)),
        GROUP => Ok(QuotaKey::Group(row.int(1)? as u32)),
        other => Err(format!("{other} is no type of a quota")),
    }
}

/// The 12 bytes each of replaced slices: id, then size, big endian.
pub(crate) fn encode_replaced(slices: &[(u64, u32)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 * slices.len());
    for (id, size) in slices {
        out.extend(id.to_be_bytes());
        out.extend(size.to_be_bytes());
    }
    out
}

fn decode_replaced(bytes: &[u8]) -> Option<Vec<(u64, u32)>> {
    let (records, rest) = bytes.as_chunks::<12>();
    let split = |record: &[u8; 12]| {
        let (id, size) = record.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*id), u32::from_be_bytes(size.try_into().ok()?)))
    };
    if rest.is_empty() { records.iter().map(split).collect() } else { None }
}
