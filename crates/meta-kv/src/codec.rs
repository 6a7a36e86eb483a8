//! Encodes and decodes records.
//!
//! Written bytes are exactly those that JuiceFS writes. Bytes that other clients wrote are either
//! decoded completely or reported as damaged. TiKV stores no empty values, so none is ever made.

use bytes::Bytes;
use sluice_meta::schema::{
    AclRule, Counter, DirStat, Entry, Key, Quota, Row, Session, decode_attr, decode_changes, decode_replaced,
    decode_slices, encode_attr, encode_changes, encode_replaced, encode_slices,
};

use crate::{
    locks,
    parts::{numbers, read_numbers},
    stored::Damage,
    totals::Lane,
};

/// The value that represents an empty one.
const MARK: &[u8] = &[1];

/// The values of a record's cells; `None` means that the cell must not exist. Locks are not here:
/// several records share their value.
pub(crate) fn encode(row: &Row) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let first = match row {
        Row::Setting(json) => Some(json.to_vec()),
        Row::Counter(counter, value) => Some(encode_counter(*counter, *value)),
        Row::Node(_, attr) => Some(encode_attr(attr)),
        Row::Entry(_, _, entry) => Some(entry.encode().to_vec()),
        Row::Parents(_, _, count) => (*count > 0).then(|| numbers(&[count.swap_bytes()])),
        Row::Symlink(_, target) => Some(target.to_vec()),
        Row::Xattr(_, _, value) if value.is_empty() => return (None, Some(MARK.to_vec())),
        Row::Xattr(_, _, value) => Some(value.to_vec()),
        Row::Chunk(_, _, slices) => (!slices.is_empty()).then(|| encode_slices(slices)),
        Row::SliceRef(_, _, refs) => (*refs != 1).then(|| numbers(&[(refs - 1).swap_bytes()])),
        Row::DelFile(_, _, time) | Row::Detached(_, time) => Some(numbers(&[*time])),
        Row::DelSlices(_, _, slices) => Some(encode_replaced(slices)),
        Row::Acl(_, rule) => Some(rule.encode()),
        Row::DirStat(_, stat) => Some(numbers(&[stat.length, stat.space, stat.inodes])),
        Row::Quota(_, q) => Some(numbers(&[q.max_space, q.max_inodes, q.used_space, q.used_inodes])),
        Row::Session(_, session) => {
            let info = session.info.as_ref().map(|info| info.to_vec());
            return (Some(numbers(&[session.expire])), info);
        }
        Row::Sustained(..) => Some(MARK.to_vec()),
        Row::Writer(_, _, n) => Some(Lane { n: *n, ..Lane::default() }.encode()),
        Row::Changes(_, _, _, n, changes) => Some([&n.to_be_bytes()[..], &encode_changes(changes)].concat()),
        Row::Flock(..) | Row::Plock(..) => None,
    };
    (first, None)
}

/// The record of `key` whose cells hold these values.
pub(crate) fn decode(key: &Key, first: Option<&[u8]>, second: Option<&[u8]>) -> Result<Option<Row>, Damage> {
    let Some(first) = first else {
        return Ok(match (key, second) {
            (Key::Xattr(ino, name), Some(_)) => Some(Row::Xattr(*ino, name.clone(), Bytes::new())),
            _ => None,
        });
    };
    Ok(Some(match key {
        Key::Setting => Row::Setting(Bytes::copy_from_slice(first)),
        Key::Counter(counter) => Row::Counter(*counter, decode_counter(*counter, first)?),
        Key::Node(ino) => Row::Node(*ino, decode_attr(first).ok_or("no attributes of a node")?),
        Key::Entry(dir, name) => {
            Row::Entry(*dir, name.clone(), Entry::decode(first).ok_or("no 9-byte directory entry")?)
        }
        Key::Parents(ino, parent) => match little(first)? {
            // Counts that fell to 0 may remain stored.
            ..=0 => return Ok(None),
            count => Row::Parents(*ino, *parent, count),
        },
        Key::Symlink(ino) => Row::Symlink(*ino, Bytes::copy_from_slice(first)),
        Key::Xattr(ino, name) => Row::Xattr(*ino, name.clone(), Bytes::copy_from_slice(first)),
        Key::Chunk(ino, index) => {
            Row::Chunk(*ino, *index, decode_slices(first).ok_or("no list of 24-byte slice records")?)
        }
        Key::SliceRef(id, size) => match little(first)? {
            // The same as no record: one reference.
            0 => return Ok(None),
            more => Row::SliceRef(*id, *size, more + 1),
        },
        Key::DelFile(ino, length) => Row::DelFile(*ino, *length, number(first)?),
        Key::Detached(ino) => Row::Detached(*ino, number(first)?),
        Key::DelSlices(id, time) => {
            Row::DelSlices(*id, *time, decode_replaced(first).ok_or("no list of 12-byte slice names")?)
        }
        Key::Acl(id) => Row::Acl(*id, AclRule::decode(first).ok_or("no ACL rule")?),
        Key::DirStat(ino) => {
            let [length, space, inodes] = read_numbers(first)?;
            Row::DirStat(*ino, DirStat { length, space, inodes })
        }
        Key::Quota(key) => {
            let [max_space, max_inodes, used_space, used_inodes] = read_numbers(first)?;
            Row::Quota(*key, Quota { max_space, max_inodes, used_space, used_inodes })
        }
        Key::Session(sid) => {
            let info = second.map(Bytes::copy_from_slice);
            Row::Session(*sid, Session { expire: number(first)?, info })
        }
        Key::Sustained(sid, ino) => Row::Sustained(*sid, *ino),
        Key::Writer(writer, lane) => Row::Writer(*writer, *lane, Lane::decode(first)?.n),
        Key::Changes(writer, lane, slot) => {
            let (n, changes) = first.split_first_chunk().ok_or("no number of a commit")?;
            Row::Changes(*writer, *lane, *slot, u64::from_be_bytes(*n), decode_changes(changes))
        }
        Key::Flock(..) | Key::Plock(..) => {
            let Some(list) = locks::collection(key) else { return Ok(None) };
            return Ok(locks::decode(list, first)?.into_iter().find(|row| row.key() == *key));
        }
    }))
}

/// Times are big endian, all other counters little endian.
fn is_time(counter: Counter) -> bool {
    matches!(
        counter,
        Counter::LastCleanupSessions
            | Counter::LastCleanupFiles
            | Counter::LastCleanupTrash
            | Counter::NextCleanupSlices
    )
}

pub(crate) fn encode_counter(counter: Counter, value: i64) -> Vec<u8> {
    numbers(&[if is_time(counter) { value } else { value.swap_bytes() }])
}

pub(crate) fn decode_counter(counter: Counter, value: &[u8]) -> Result<i64, Damage> {
    if is_time(counter) { number(value) } else { little(value) }
}

fn number(value: &[u8]) -> Result<i64, Damage> {
    read_numbers(value).map(|[number]| number)
}

/// A little-endian number.
fn little(value: &[u8]) -> Result<i64, Damage> {
    number(value).map(i64::swap_bytes)
}
