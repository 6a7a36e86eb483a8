//! Records to the columns of their rows, for every SQL database; `codec` has the way back.
//!
//! What must stay true: the values stand in the order of the record's
//! [`Shape`](crate::codec::Shape), so that one that was written reads as it was.

use std::borrow::Cow;

use sluice_meta::schema::{
    AclRule, Counter, Key, Quota, QuotaKey, Row, Session, encode_changes, encode_plocks, encode_replaced,
    encode_slices,
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

const fn int<'r>(of: i64) -> Value<'r> {
    Value::Int(of)
}

const fn id<'r>(of: u64) -> Value<'r> {
    Value::Int(of as i64)
}

/// Which record a key names, and the values of the columns that name it; nothing for what is
/// counted from other rows: parents, and the number of the last ACL rule.
pub(crate) fn key_values(key: &Key) -> Option<(Record, Vec<Value<'_>>)> {
    Some(match key {
        Key::Parents(..) | Key::Counter(Counter::AclMaxId) => return None,
        Key::Setting => (Record::Setting, vec![text(FORMAT)]),
        Key::Counter(counter) => (Record::Counter, vec![text(counter.name().as_bytes())]),
        Key::Node(ino) => (Record::Node, vec![id(ino.0)]),
        Key::Entry(dir, name) => (Record::Entry, vec![id(dir.0), bytes(name)]),
        Key::Symlink(ino) => (Record::Symlink, vec![id(ino.0)]),
        Key::Xattr(ino, name) => (Record::Xattr, vec![id(ino.0), text(name)]),
        Key::Chunk(ino, index) => (Record::Chunk, vec![id(ino.0), int((*index).into())]),
        Key::SliceRef(slice, size) => (Record::SliceRef, vec![id(*slice), int((*size).into())]),
        Key::DelFile(ino, length) => (Record::DelFile, vec![id(ino.0), id(*length)]),
        Key::DelSlices(slice, time) => (Record::DelSlices, vec![id(*slice), int(*time)]),
        Key::Acl(acl) => (Record::Acl, vec![int((*acl).into())]),
        Key::DirStat(ino) => (Record::DirStat, vec![id(ino.0)]),
        Key::Quota(QuotaKey::Dir(ino)) => (Record::DirQuota, vec![id(ino.0)]),
        Key::Quota(key) => {
            let (kind, of) = quota_columns(*key);
            (Record::Quota, vec![int(kind), int(of)])
        }
        Key::Session(sid) => (Record::Session, vec![id(*sid)]),
        Key::Sustained(sid, ino) => (Record::Sustained, vec![id(*sid), id(ino.0)]),
        Key::Flock(ino, owner) => (Record::Flock, vec![id(ino.0), id(owner.sid), id(owner.owner)]),
        Key::Plock(ino, owner) => (Record::Plock, vec![id(ino.0), id(owner.sid), id(owner.owner)]),
        Key::Detached(ino) => (Record::Detached, vec![id(ino.0)]),
        Key::Writer(writer, lane) => (Record::Writer, vec![id(*writer), int((*lane).into())]),
        Key::Changes(writer, lane, slot) => {
            (Record::Changes, vec![id(*writer), int((*lane).into()), int((*slot).into())])
        }
    })
}

/// Which record a row is, and the values of all its columns; nothing for what is counted from other
/// rows.
pub(crate) fn row_values(row: &Row) -> Option<(Record, Vec<Value<'_>>)> {
    Some(match row {
        Row::Parents(..) | Row::Counter(Counter::AclMaxId, _) => return None,
        Row::Setting(json) => (Record::Setting, vec![text(FORMAT), text(json)]),
        Row::Counter(counter, value) => (Record::Counter, vec![text(counter.name().as_bytes()), int(*value)]),
        Row::Node(ino, attr) => (Record::Node, node_values(*ino, attr).map(Value::Int).into()),
        Row::Entry(dir, name, entry) => {
            (Record::Entry, vec![id(dir.0), bytes(name), id(entry.ino.0), int(entry.kind as i64)])
        }
        Row::Symlink(ino, target) => (Record::Symlink, vec![id(ino.0), bytes(target)]),
        Row::Xattr(ino, name, value) => (Record::Xattr, vec![id(ino.0), text(name), bytes(value)]),
        Row::Chunk(ino, index, slices) => {
            (Record::Chunk, vec![id(ino.0), int((*index).into()), owned(encode_slices(slices))])
        }
        Row::SliceRef(slice, size, refs) => {
            (Record::SliceRef, vec![id(*slice), int((*size).into()), int(*refs)])
        }
        Row::DelFile(ino, length, time) => (Record::DelFile, vec![id(ino.0), id(*length), int(*time)]),
        Row::DelSlices(slice, time, replaced) => {
            (Record::DelSlices, vec![id(*slice), int(*time), owned(encode_replaced(replaced))])
        }
        Row::Acl(acl, rule) => (Record::Acl, acl_values(*acl, rule)),
        Row::DirStat(ino, stat) => {
            (Record::DirStat, vec![id(ino.0), int(stat.length), int(stat.space), int(stat.inodes)])
        }
        Row::Quota(QuotaKey::Dir(ino), quota) => {
            (Record::DirQuota, [id(ino.0)].into_iter().chain(quota_values(quota)).collect())
        }
        Row::Quota(key, quota) => {
            let (kind, of) = quota_columns(*key);
            (Record::Quota, [int(kind), int(of)].into_iter().chain(quota_values(quota)).collect())
        }
        Row::Session(sid, session) => {
            (Record::Session, vec![id(*sid), int(session.expire), session_info(session)])
        }
        Row::Sustained(sid, ino) => (Record::Sustained, vec![id(*sid), id(ino.0)]),
        Row::Flock(ino, owner, kind) => {
            let code = i64::from(kind.code());
            (Record::Flock, vec![id(ino.0), id(owner.sid), id(owner.owner), int(code)])
        }
        Row::Plock(ino, owner, ranges) => {
            (Record::Plock, vec![id(ino.0), id(owner.sid), id(owner.owner), owned(encode_plocks(ranges))])
        }
        Row::Detached(ino, time) => (Record::Detached, vec![id(ino.0), int(*time)]),
        Row::Writer(writer, lane, n) => (Record::Writer, vec![id(*writer), int((*lane).into()), id(*n)]),
        Row::Changes(writer, lane, slot, n, changes) => {
            let key = [id(*writer), int((*lane).into()), int((*slot).into())];
            (Record::Changes, key.into_iter().chain([id(*n), owned(encode_changes(changes))]).collect())
        }
    })
}

fn acl_values(acl: u32, rule: &AclRule) -> Vec<Value<'_>> {
    let base = [rule.owner, rule.group, rule.mask, rule.other];
    std::iter::once(int(acl.into()))
        .chain(base.map(|perm| int(perm.into())))
        .chain([&rule.users, &rule.groups].map(|named| owned(AclRule::encode_entries(named))))
        .collect()
}

const fn quota_values<'r>(quota: &Quota) -> [Value<'r>; 4] {
    [int(quota.max_space), int(quota.max_inodes), int(quota.used_space), int(quota.used_inodes)]
}

fn session_info(session: &Session) -> Value<'_> {
    session.info.as_ref().map_or(Value::Null, |info| bytes(info))
}

/// Whether a guard of a node compares the column at this place: all but times, links, length and
/// device.
pub(crate) const fn is_guarded(at: usize) -> bool {
    matches!(at, 1..=5 | 15..=18)
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
