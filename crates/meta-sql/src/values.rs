//! Encodes records as columns of rows, for every SQL database; `codec` decodes them.
//!
//! What must stay true: the values have the order of the record's [`Shape`](crate::codec::Shape),
//! so that `codec` decodes what this module encoded.

use std::{borrow::Cow, collections::BTreeMap};

use sluice_meta::{
    engine::Write,
    schema::{
        AclRule, Counter, Key, LockOwner, Quota, QuotaKey, Row, encode_changes, encode_plocks,
        encode_replaced, encode_slices,
    },
};
use sluice_types::{Attr, Ino, Time};

use crate::codec::{GROUP, Record, USER};

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value<'r> {
    /// NULL.
    Null,
    /// A number; the bits of an unsigned one.
    Int(i64),
    /// Text, usually valid UTF-8. The name of an extended attribute may be something else, which
    /// only some databases store.
    Text(Cow<'r, [u8]>),
    /// Bytes.
    Bytes(Cow<'r, [u8]>),
}

impl Value<'_> {
    /// The number; 0 of what is none.
    pub(crate) const fn number(&self) -> i64 {
        if let Self::Int(number) = self { *number } else { 0 }
    }
}

/// `name` of the row of the settings.
pub(crate) const FORMAT: &[u8] = b"format";

fn text(of: &[u8]) -> Value<'_> {
    Value::Text(Cow::Borrowed(of))
}

fn bytes(of: &[u8]) -> Value<'_> {
    Value::Bytes(Cow::Borrowed(of))
}

const fn owned<'r>(of: Vec<u8>) -> Value<'r> {
    Value::Bytes(Cow::Owned(of))
}

/// A number, whatever its type.
pub(crate) fn int<'r>(of: impl Into<i64>) -> Value<'r> {
    Value::Int(of.into())
}

/// The bits of an unsigned number.
pub(crate) const fn id<'r>(of: u64) -> Value<'r> {
    Value::Int(of as i64)
}

fn put<'v, const N: usize>(
    out: &mut impl Extend<Value<'v>>,
    record: Record,
    values: [Value<'v>; N],
) -> Record {
    out.extend(values);
    record
}

/// [`push_key`] to a new list.
pub(crate) fn key_values(key: &Key) -> Option<(Record, Vec<Value<'_>>)> {
    let mut values = Vec::new();
    push_key(key, &mut values).map(|record| (record, values))
}

/// [`push_row`] to a new list.
pub(crate) fn row_values(row: &Row) -> Option<(Record, Vec<Value<'_>>)> {
    let mut values = Vec::new();
    push_row(row, &mut values).map(|record| (record, values))
}

/// Appends the values of the columns that name a record to `out`, and says which record it is;
/// nothing of what is counted from other rows: parents, and the number of the last ACL rule.
pub(crate) fn push_key<'k>(key: &'k Key, out: &mut impl Extend<Value<'k>>) -> Option<Record> {
    let owned_by = |ino: &Ino, owner: &LockOwner| [id(ino.0), id(owner.sid), id(owner.owner)];
    Some(match key {
        Key::Parents(..) | Key::Counter(Counter::AclMaxId) => return None,
        Key::Setting => put(out, Record::Setting, [text(FORMAT)]),
        Key::Counter(counter) => put(out, Record::Counter, [text(counter.name().as_bytes())]),
        Key::Node(ino) => put(out, Record::Node, [id(ino.0)]),
        Key::Entry(dir, name) => put(out, Record::Entry, [id(dir.0), bytes(name)]),
        Key::Symlink(ino) => put(out, Record::Symlink, [id(ino.0)]),
        Key::Xattr(ino, name) => put(out, Record::Xattr, [id(ino.0), text(name)]),
        Key::Chunk(ino, index) => put(out, Record::Chunk, [id(ino.0), int(*index)]),
        Key::SliceRef(slice, size) => put(out, Record::SliceRef, [id(*slice), int(*size)]),
        Key::DelFile(ino, length) => put(out, Record::DelFile, [id(ino.0), id(*length)]),
        Key::DelSlices(slice, time) => put(out, Record::DelSlices, [id(*slice), int(*time)]),
        Key::Acl(acl) => put(out, Record::Acl, [int(*acl)]),
        Key::DirStat(ino) => put(out, Record::DirStat, [id(ino.0)]),
        Key::Quota(QuotaKey::Dir(ino)) => put(out, Record::DirQuota, [id(ino.0)]),
        Key::Quota(key) => {
            let (kind, of) = quota_columns(*key);
            put(out, Record::Quota, [int(kind), int(of)])
        }
        Key::Session(sid) => put(out, Record::Session, [id(*sid)]),
        Key::Sustained(sid, ino) => put(out, Record::Sustained, [id(*sid), id(ino.0)]),
        Key::Flock(ino, owner) => put(out, Record::Flock, owned_by(ino, owner)),
        Key::Plock(ino, owner) => put(out, Record::Plock, owned_by(ino, owner)),
        Key::Detached(ino) => put(out, Record::Detached, [id(ino.0)]),
        Key::Writer(writer, lane) => put(out, Record::Writer, [id(*writer), int(*lane)]),
        Key::Changes(writer, lane, slot) => put(out, Record::Changes, [id(*writer), int(*lane), int(*slot)]),
        Key::Extra(kind, n) => put(out, Record::Extra, [int(kind.code()), id(*n)]),
    })
}

/// Appends the values of all columns of a row to `out`, and says which record it is; nothing of
/// what is counted from other rows.
pub(crate) fn push_row<'r>(row: &'r Row, out: &mut impl Extend<Value<'r>>) -> Option<Record> {
    Some(match row {
        Row::Parents(..) | Row::Counter(Counter::AclMaxId, _) => return None,
        Row::Setting(json) => put(out, Record::Setting, [text(FORMAT), text(json)]),
        Row::Counter(counter, value) => {
            put(out, Record::Counter, [text(counter.name().as_bytes()), int(*value)])
        }
        Row::Node(ino, attr) => {
            // Handed over one by one: a list of them is long.
            out.extend(node_values(*ino, attr).into_iter().map(Value::Int));
            Record::Node
        }
        Row::Entry(dir, name, entry) => {
            put(out, Record::Entry, [id(dir.0), bytes(name), id(entry.ino.0), int(entry.kind as i64)])
        }
        Row::Symlink(ino, target) => put(out, Record::Symlink, [id(ino.0), bytes(target)]),
        Row::Xattr(ino, name, value) => put(out, Record::Xattr, [id(ino.0), text(name), bytes(value)]),
        Row::Chunk(ino, index, slices) => {
            put(out, Record::Chunk, [id(ino.0), int(*index), owned(encode_slices(slices))])
        }
        Row::SliceRef(slice, size, refs) => put(out, Record::SliceRef, [id(*slice), int(*size), int(*refs)]),
        Row::DelFile(ino, length, time) => put(out, Record::DelFile, [id(ino.0), id(*length), int(*time)]),
        Row::DelSlices(slice, time, replaced) => {
            put(out, Record::DelSlices, [id(*slice), int(*time), owned(encode_replaced(replaced))])
        }
        Row::Acl(acl, rule) => put(out, Record::Acl, acl_values(*acl, rule)),
        Row::DirStat(ino, stat) => {
            put(out, Record::DirStat, [id(ino.0), int(stat.length), int(stat.space), int(stat.inodes)])
        }
        Row::Quota(key, quota) => {
            let (kind, of) = quota_columns(*key);
            let Quota { max_space, max_inodes, used_space, used_inodes } = *quota;
            let values = [kind, of, max_space, max_inodes, used_space, used_inodes].map(Value::Int);
            match (key, values) {
                (QuotaKey::Dir(_), [_, values @ ..]) => put(out, Record::DirQuota, values),
                (_, values) => put(out, Record::Quota, values),
            }
        }
        Row::Session(sid, session) => {
            let info = session.info.as_ref().map_or(Value::Null, |info| bytes(info));
            put(out, Record::Session, [id(*sid), int(session.expire), info])
        }
        Row::Sustained(sid, ino) => put(out, Record::Sustained, [id(*sid), id(ino.0)]),
        Row::Flock(ino, owner, kind) => {
            put(out, Record::Flock, [id(ino.0), id(owner.sid), id(owner.owner), int(kind.code())])
        }
        Row::Plock(ino, owner, ranges) => {
            let ranges = owned(encode_plocks(ranges));
            put(out, Record::Plock, [id(ino.0), id(owner.sid), id(owner.owner), ranges])
        }
        Row::Detached(ino, time) => put(out, Record::Detached, [id(ino.0), int(*time)]),
        Row::Writer(writer, lane, n) => put(out, Record::Writer, [id(*writer), int(*lane), id(*n)]),
        Row::Changes(writer, lane, slot, n, changes) => {
            let changes = owned(encode_changes(changes));
            put(out, Record::Changes, [id(*writer), int(*lane), int(*slot), id(*n), changes])
        }
        Row::Extra(kind, n, value) => put(out, Record::Extra, [int(kind.code()), id(*n), bytes(&value.0)]),
    })
}

/// Appends to `out` the columns that name a row, and what a write adds to that row, and says which
/// record that is; nothing of another write. Of a node these are links and, if they are to change,
/// times.
pub(crate) fn push_added<'w>(write: &'w Write, out: &mut impl Extend<Value<'w>>) -> Option<(Record, Key)> {
    let (record, key) = match write {
        Write::Bump { ino, nlink, time } => {
            let (micros, nanos) = time.map(time_columns).unzip();
            let [micros, nanos] = [micros, nanos].map(|part| part.map_or(Value::Null, Value::Int));
            (put(out, Record::Node, [id(ino.0), int(*nlink), micros, nanos]), Key::Node(*ino))
        }
        Write::Count(counter, by) if *counter != Counter::AclMaxId => {
            let values = [text(counter.name().as_bytes()), int(*by)];
            (put(out, Record::Counter, values), Key::Counter(*counter))
        }
        // A slice without a record has one reference.
        Write::Refer(slice, size, by) => {
            let values = [id(*slice), int(*size), int(1 + by)];
            (put(out, Record::SliceRef, values), Key::SliceRef(*slice, *size))
        }
        Write::Use(ino, by) => {
            let values = [id(ino.0), int(by.length), int(by.space), int(by.inodes)];
            (put(out, Record::DirStat, values), Key::DirStat(*ino))
        }
        Write::Charge(key, space, inodes) => {
            let (kind, of) = quota_columns(*key);
            let record = match key {
                QuotaKey::Dir(_) => put(out, Record::DirQuota, [of, *space, *inodes].map(Value::Int)),
                _ => put(out, Record::Quota, [kind, of, -1, -1, *space, *inodes].map(Value::Int)),
            };
            (record, Key::Quota(*key))
        }
        Write::Append(ino, index, slices) => {
            let values = [id(ino.0), int(*index), owned(encode_slices(slices))];
            (put(out, Record::Chunk, values), Key::Chunk(*ino, *index))
        }
        _ => return None,
    };
    Some((record, key))
}

/// The values of rows by the tables that hold them, without what is counted from other rows.
pub(crate) fn by_record(rows: &[Row]) -> BTreeMap<Record, Vec<Vec<Value<'_>>>> {
    let mut tables: BTreeMap<Record, Vec<Vec<Value<'_>>>> = BTreeMap::new();
    for (record, values) in rows.iter().filter_map(row_values) {
        tables.entry(record).or_default().push(values);
    }
    tables
}

fn acl_values<'r>(acl: u32, rule: &AclRule) -> [Value<'r>; 7] {
    let [owner, group, mask, other] = [rule.owner, rule.group, rule.mask, rule.other].map(int);
    let [users, groups] = [&rule.users, &rule.groups].map(|named| owned(AclRule::encode_entries(named)));
    [int(acl), owner, group, mask, other, users, groups]
}

/// Whether a guard of a node compares the column at this place: all but times, links, length and
/// device.
pub(crate) const fn is_guarded(at: usize) -> bool {
    matches!(at, 1..=5 | 15..=18)
}

/// Columns of a node.
const NODE_COLUMNS: usize = 19;

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

/// `qtype` and `qkey` of a quota; 0 is the type of directories, which have a table of their own.
pub(crate) const fn quota_columns(key: QuotaKey) -> (i64, i64) {
    match key {
        QuotaKey::Dir(ino) => (0, ino.0 as i64),
        QuotaKey::User(uid) => (USER, uid as i64),
        QuotaKey::Group(gid) => (GROUP, gid as i64),
    }
}

#[cfg(test)]
mod tests {
    use sluice_meta::engine::{Hold, still_holds};
    use sluice_types::{AttrFlags, FileType};

    use super::*;

    type Change = fn(&mut Attr, Time);

    #[test]
    fn a_guard_compares_what_the_contract_says() {
        let time = Time { sec: 9, nsec: 1_999 };
        let changes: [(&str, Change); 15] = [
            ("type", |attr, _| attr.kind = FileType::Dir),
            ("flags", |attr, _| attr.flags = AttrFlags(1)),
            ("mode", |attr, _| attr.mode = 9),
            ("uid", |attr, _| attr.uid = 9),
            ("gid", |attr, _| attr.gid = 9),
            ("atime", |attr, time| attr.atime = time),
            ("mtime", |attr, time| attr.mtime = time),
            ("ctime", |attr, time| attr.ctime = time),
            ("nlink", |attr, _| attr.nlink = 9),
            ("length", |attr, _| attr.length = 9),
            ("rdev", |attr, _| attr.rdev = 9),
            ("parent", |attr, _| attr.parent = Ino(9)),
            ("access_acl_id", |attr, _| attr.access_acl = 9),
            ("default_acl_id", |attr, _| attr.default_acl = 9),
            ("tier_id", |attr, _| attr.tier = 9),
        ];
        let names: Vec<&str> = Record::Node.shape().columns.split(',').collect();
        for (name, change) in changes {
            let old = Attr::new(FileType::File, 1, 1, 1, Ino(1), Time { sec: 1, nsec: 0 });
            let mut new = old;
            change(&mut new, time);
            let [before, after] = [&old, &new].map(|attr| node_values(Ino(2), attr));
            let places: Vec<usize> = (0..NODE_COLUMNS).filter(|at| before[*at] != after[*at]).collect();
            assert!(places.iter().any(|at| names[*at] == name), "{name}: {places:?}");
            let holds = still_holds(Hold::Guard, &Row::Node(Ino(2), old), &Row::Node(Ino(2), new));
            assert!(places.iter().all(|at| is_guarded(*at) != holds), "{name}");
        }
    }
}
