//! Encodes and decodes records.
//!
//! Encoded records are byte-identical to those of JuiceFS. Bytes that other clients wrote are
//! either decoded completely or reported as damaged. TiKV stores no empty values, so none is ever
//! made.

use bytes::Bytes;
use sluice_meta::schema::{Counter, DirStat, Key, Quota, Row, Session};

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
        Row::Counter(counter, value) => Some(encode_counter(*counter, *value)),
        Row::Parents(_, _, count) => (*count > 0).then(|| numbers(&[count.swap_bytes()])),
        Row::Xattr(_, _, value) if value.is_empty() => return (None, Some(MARK.to_vec())),
        Row::SliceRef(_, _, refs) => (*refs != 1).then(|| numbers(&[(refs - 1).swap_bytes()])),
        Row::DelFile(_, _, time) | Row::Detached(_, time) => Some(numbers(&[*time])),
        Row::DirStat(_, stat) => Some(numbers(&[stat.length, stat.space, stat.inodes])),
        Row::Quota(_, q) => Some(numbers(&[q.max_space, q.max_inodes, q.used_space, q.used_inodes])),
        Row::Session(_, session) => {
            let info = session.info.as_ref().map(|info| info.to_vec());
            return (Some(numbers(&[session.expire])), info);
        }
        Row::Sustained(..) => Some(MARK.to_vec()),
        Row::Writer(_, _, n) => Some(Lane { n: *n, ..Lane::default() }.encode()),
        Row::Flock(..) | Row::Plock(..) => None,
        _ => row.plain(),
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
        Key::Counter(counter) => Row::Counter(*counter, decode_counter(*counter, first)?),
        Key::Parents(ino, parent) => match little(first)? {
            // Counts that fell to 0 may remain stored.
            ..=0 => return Ok(None),
            count => Row::Parents(*ino, *parent, count),
        },
        Key::SliceRef(id, size) => match little(first)? {
            // The same as no record: one reference.
            0 => return Ok(None),
            more => Row::SliceRef(*id, *size, more + 1),
        },
        Key::DelFile(ino, length) => Row::DelFile(*ino, *length, number(first)?),
        Key::Detached(ino) => Row::Detached(*ino, number(first)?),
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
        Key::Flock(..) | Key::Plock(..) => {
            let Some(list) = locks::collection(key) else { return Ok(None) };
            return Ok(locks::decode(list, first)?.into_iter().find(|row| row.key() == *key));
        }
        _ => return Row::read_plain(key, first.into()),
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
