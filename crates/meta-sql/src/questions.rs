//! Reads put together by what they ask for, so that those of a kind make one statement.
//!
//! What must stay true: an answer stands at the place of its question, says what the tables hold and
//! decides nothing.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{Found, List, Read},
    schema::{Counter, Key, Row},
};
use sluice_types::Name;

use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    text::{Look, listed},
    values::{Value, key_values},
};

/// Questions, each with its place.
#[derive(Default)]
pub(crate) struct Questions<'r> {
    /// For records by their keys, with the values of the columns that these name.
    pub(crate) keys: BTreeMap<Record, Vec<(usize, &'r Key, Vec<Value<'r>>)>>,
    /// For whole collections, by whose they are.
    pub(crate) lists: BTreeMap<(Record, Look), Vec<(usize, i64)>>,
    /// For chunks from one index up to, not including, another, by the inode.
    pub(crate) ranges: BTreeMap<(u32, u32), Vec<(usize, i64)>>,
    /// For entries and their nodes, by directory and name.
    pub(crate) follows: Vec<(usize, i64, &'r [u8])>,
    /// Those that have a statement of their own, with its parameters.
    pub(crate) alone: Vec<(usize, Look, Record, Vec<i64>)>,
}

impl<'r> Questions<'r> {
    pub(crate) fn new(reads: &'r [Read]) -> Self {
        let mut asked = Self::default();
        for (at, read) in reads.iter().enumerate() {
            match read {
                Read::Get(Key::Counter(Counter::AclMaxId)) => {
                    asked.alone.push((at, Look::Last, Record::Acl, Vec::new()));
                }
                Read::Get(Key::Parents(ino, parent)) => {
                    asked.alone.push((
                        at,
                        Look::Get,
                        Record::Parents,
                        [ino, parent].map(|i| i.0 as i64).into(),
                    ));
                }
                // There is none by a name that is no text, and a server would not even compare with
                // it.
                Read::Get(Key::Xattr(_, name)) if std::str::from_utf8(name).is_err() => {}
                Read::Get(key) => {
                    if let Some((record, values)) = key_values(key) {
                        asked.keys.entry(record).or_default().push((at, key, values));
                    }
                }
                Read::Follow(dir, name) => asked.follows.push((at, dir.0 as i64, &name[..])),
                Read::Names { dir, limit } => {
                    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
                    asked.alone.push((at, Look::Names, Record::Entry, vec![dir.0 as i64, limit]));
                }
                Read::All(List::Chunks(ino, from, to)) => {
                    asked.ranges.entry((*from, *to)).or_default().push((at, ino.0 as i64));
                }
                Read::All(list) => {
                    let (records, what, of) = listed(*list);
                    for record in records {
                        asked.lists.entry((*record, what)).or_default().push((at, of as i64));
                    }
                }
            }
        }
        asked
    }
}

/// The answer if there is nothing.
pub(crate) const fn nothing(read: &Read) -> Found {
    match read {
        Read::Get(..) => Found::Row(None),
        Read::Follow(..) | Read::All(..) => Found::Rows(Vec::new()),
        Read::Names { .. } => Found::Names(Vec::new()),
    }
}

/// Puts a record to an answer.
pub(crate) fn put(found: &mut Found, row: Row) {
    match found {
        Found::Row(place) => *place = Some(row),
        Found::Rows(rows) => rows.push(row),
        Found::Names(_) => {}
    }
}

/// Takes a row of a statement that answers one question.
pub(crate) fn take(what: Look, record: Record, row: &impl Columns, found: &mut Found) -> Result<(), Damage> {
    match what {
        Look::Names => {
            if let Found::Names(names) = found {
                names.push(Name::stored(row.bytes(0).map_err(odd)?));
            }
        }
        Look::Last if row.is_null(0) => {}
        Look::Last => put(found, Row::Counter(Counter::AclMaxId, row.int(0).map_err(odd)?)),
        Look::Follow => decode_joined(row, 0, |row| put(found, row))?,
        _ => put(found, decode(record, row, 0)?),
    }
    Ok(())
}

/// An answer that does not fit its question.
pub(crate) fn odd(reason: String) -> Damage {
    Damage { record: "an answer".into(), reason }
}
