//! Groups reads by kind, so that those of one kind make one statement.
//!
//! What must stay true: a result is at the position of its request, and is exactly what the tables
//! hold.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{Found, List, Read},
    schema::{Counter, Key, Row},
};
use sluice_types::Name;
use smallvec::SmallVec;

use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    text::{Look, listed},
    values::{Value, id, int, key_values, push_key},
};

/// Whether these reads have an answer although their tables are missing: whether this is a volume,
/// and what only Sluice stores. `JuiceFS` makes no table for that.
pub(crate) fn may_lack_tables(reads: &[Read]) -> bool {
    let may =
        |read: &Read| matches!(read, Read::Get(Key::Setting | Key::Extra(..)) | Read::All(List::Extras(_)));
    reads.iter().all(may)
}

/// Parameters of a statement for one request.
pub(crate) type Values<'r> = SmallVec<[Value<'r>; 3]>;

/// The place of a question for a record, its key, and the values of the columns that this names.
type Keyed<'r> = (usize, &'r Key, Vec<Value<'r>>);

/// Requests, each with its position.
#[derive(Default)]
pub(crate) struct Questions<'r> {
    /// For records by their keys.
    pub(crate) keys: BTreeMap<Record, Vec<Keyed<'r>>>,
    /// For whole collections, by whose they are.
    pub(crate) lists: BTreeMap<(Record, Look), Vec<(usize, i64)>>,
    /// For chunks from one index up to, not including, another, by the inode.
    pub(crate) ranges: BTreeMap<(u32, u32), Vec<(usize, i64)>>,
    /// For entries and their nodes, by directory and name.
    pub(crate) follows: Vec<(usize, i64, &'r [u8])>,
    /// Those that have a statement of their own, with its parameters.
    pub(crate) alone: Vec<(usize, Look, Record, Values<'r>)>,
}

impl<'r> Questions<'r> {
    pub(crate) fn new(reads: &'r [Read]) -> Self {
        let mut questions = Self::default();
        for (at, read) in reads.iter().enumerate() {
            match read {
                // There is none by a name that is no text, and a server would not even compare with
                // it.
                Read::Get(Key::Xattr(_, name)) if std::str::from_utf8(name).is_err() => {}
                Read::Get(key) if let Some((record, values)) = key_values(key) => {
                    questions.keys.entry(record).or_default().push((at, key, values));
                }
                Read::Follow(dir, name) => questions.follows.push((at, dir.0 as i64, &name[..])),
                Read::All(List::Chunks(ino, from, to)) => {
                    questions.ranges.entry((*from, *to)).or_default().push((at, ino.0 as i64));
                }
                Read::All(list) => {
                    let (records, what, of) = listed(*list);
                    for record in records {
                        questions.lists.entry((*record, what)).or_default().push((at, of as i64));
                    }
                }
                Read::Get(_) | Read::Names { .. } => {
                    let (what, records, values) = asked(read);
                    questions.alone.extend(records.iter().map(|record| (at, what, *record, values.clone())));
                }
            }
        }
        questions
    }
}

/// One question: what its statements do, with which records, and their parameters.
pub(crate) fn asked(read: &Read) -> (Look, &'static [Record], Values<'_>) {
    let mut values = Values::new();
    let one = |record: Record| &Record::ALL[record as usize..=record as usize];
    let (what, records) = match read {
        Read::Get(Key::Counter(Counter::AclMaxId)) => (Look::Last, one(Record::Acl)),
        Read::Get(Key::Parents(ino, parent)) => {
            values.extend([id(ino.0), id(parent.0)]);
            (Look::Get, one(Record::Parents))
        }
        Read::Get(key) => (Look::Get, push_key(key, &mut values).map_or(&[][..], one)),
        Read::Follow(dir, name) => {
            values.extend([id(dir.0), Value::Bytes(name[..].into())]);
            (Look::Follow, one(Record::Entry))
        }
        Read::Names { dir, limit } => {
            values.extend([id(dir.0), int(i64::try_from(*limit).unwrap_or(i64::MAX))]);
            (Look::Names, one(Record::Entry))
        }
        Read::All(list) => {
            let (records, what, of) = listed(*list);
            values.push(id(of));
            if let List::Chunks(_, from, to) = list {
                values.extend([int(*from), int(*to)]);
            }
            (what, records)
        }
    };
    (what, records, values)
}

/// Adds a record to a result.
pub(crate) fn put(found: &mut Found, row: Row) {
    match found {
        Found::Row(place) => *place = Some(row),
        Found::Rows(rows) => rows.push(row),
        Found::Names(_) => {}
    }
}

/// Adds a row of a statement for one request to its result.
pub(crate) fn take(what: Look, record: Record, row: &impl Columns, found: &mut Found) -> Result<(), Damage> {
    match what {
        Look::Names => {
            if let Found::Names(names) = found {
                names.push(Name::stored(row.bytes(0).map_err(unexpected_answer)?));
            }
        }
        Look::Last if row.is_null(0) => {}
        Look::Last => put(found, Row::Counter(Counter::AclMaxId, row.int(0).map_err(unexpected_answer)?)),
        Look::Follow => decode_joined(row, 0, |row| put(found, row))?,
        _ => put(found, decode(record, row, 0)?),
    }
    Ok(())
}

/// The error for a result that does not fit its request.
pub(crate) fn unexpected_answer(reason: String) -> Damage {
    Damage { record: "an answer".into(), reason }
}
