//! Applies the writes of a commit inside its transaction.
//!
//! What must stay true: a precondition that fails is a conflict that names its key, found before
//! COMMIT. New rows are collected, and many are inserted with one statement, because this is the
//! most frequent write.

use std::collections::BTreeMap;

use rusqlite::CachedStatement;
use sluice_meta::{
    engine::{EngineError, List, Step, Write},
    schema::{Key, Row},
};
use smallvec::SmallVec;

use super::{
    error::is_duplicate,
    read::Reader,
    statements::{Binding, bind},
    texts::{Kind, MANY, What},
};
use crate::{
    codec::{Damage, Record},
    expected::existing,
    plan::cleared,
    values::{Value, id, int, push_added, push_key, push_row},
};

/// What is written inside one transaction.
pub(super) struct Writing<'s, 'c> {
    reader: Reader<'s, 'c>,
}

/// New rows that wait to be inserted together.
#[derive(Default)]
struct Gathered<'w> {
    rows: BTreeMap<Record, Vec<&'w Row>>,
    /// What is added to references, as rows of slices that had one.
    refers: Vec<Row>,
}

impl<'w> Gathered<'w> {
    fn insert(&mut self, row: &'w Row) {
        if let Some(record) = record_of(row) {
            self.rows.entry(record).or_default().push(row);
        }
    }
}

/// What a row holds; nothing of what is counted from other rows.
fn record_of(row: &Row) -> Option<Record> {
    match row {
        // The most, whose values would be made in vain.
        Row::Node(..) => Some(Record::Node),
        Row::Entry(..) => Some(Record::Entry),
        Row::Chunk(..) => Some(Record::Chunk),
        Row::SliceRef(..) => Some(Record::SliceRef),
        _ => push_row(row, &mut Nowhere),
    }
}

/// Takes values and keeps none.
struct Nowhere;

impl<'v> Extend<Value<'v>> for Nowhere {
    fn extend<I: IntoIterator<Item = Value<'v>>>(&mut self, _: I) {}
}

impl<'s, 'c> Writing<'s, 'c> {
    pub(super) fn new(reader: Reader<'s, 'c>) -> Self {
        Self { reader }
    }

    /// Takes the writer record from one number to the next.
    pub(super) fn step(&self, step: Step) -> Result<(), EngineError> {
        let values = [id(step.writer), int(step.lane), id(step.from), id(step.to)];
        let changed = self.run((What::Step, Record::Writer), &values)?;
        must(changed == 1, || Key::Writer(step.writer, step.lane))
    }

    /// Applies all of `writes`.
    pub(super) fn apply_all(&self, writes: &[Write]) -> Result<(), EngineError> {
        let mut new = Gathered::default();
        let xattrs = |write: &Write| matches!(write, Write::Clear(List::Xattrs(_)));
        let no_xattrs = self.reader.without_xattrs(writes.iter().filter(|write| xattrs(write)).count())?;
        for write in writes {
            if !matches!(write, Write::Insert(_) | Write::Refer(..)) && !new.refers.is_empty() {
                self.flush(&mut new)?;
            }
            match write {
                Write::Refer(slice, size, by) => new.refers.push(Row::SliceRef(*slice, *size, 1 + by)),
                Write::Insert(row) => new.insert(row),
                Write::Put(row) => {
                    if let Some(record) = record_of(row) {
                        self.store(record, [What::Put; 2], &[row])?;
                    }
                }
                Write::Delete(key) => must(self.remove(key)?, || key.clone())?,
                Write::Discard(key) => drop(self.remove(key)?),
                // Removals of collections come before anything that fills them.
                write if no_xattrs && xattrs(write) => {}
                Write::Clear(list) => self.clear(*list)?,
                Write::Notify(_) => {}
                Write::Log(line) => {
                    let line = [Value::Null, Value::Text(line.as_bytes().into())];
                    self.run((What::Insert, Record::Line), &line)?;
                }
                adding => {
                    // What is added to may be among the new.
                    self.flush(&mut new)?;
                    self.add(adding)?;
                }
            }
        }
        self.flush(&mut new)
    }

    /// Inserts rows of any tables.
    pub(super) fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        let mut new = Gathered::default();
        for row in rows {
            new.insert(row);
        }
        self.flush(&mut new)
    }

    fn flush(&self, new: &mut Gathered<'_>) -> Result<(), EngineError> {
        let Gathered { rows, refers } = std::mem::take(new);
        for (record, rows) in rows {
            self.store(record, [What::Insert, What::InsertMany], &rows)?;
        }
        let refers: Vec<&Row> = refers.iter().collect();
        self.store(Record::SliceRef, [What::Add, What::AddMany], &refers)
    }

    /// Stores rows of one table: by one statement each by itself, by the other [`MANY`] at once.
    fn store(&self, record: Record, [one, many]: [What; 2], rows: &[&Row]) -> Result<(), EngineError> {
        let (full, rest) = rows.as_chunks::<MANY>();
        let groups =
            full.iter().map(|group| (many, &group[..])).chain(rest.chunks(1).map(|group| (one, group)));
        for (what, group) in groups {
            let insert = |statement: &mut CachedStatement<'_>| {
                let mut binding = Binding::new(statement);
                for row in group {
                    push_row(row, &mut binding);
                }
                binding.done()?.raw_execute()
            };
            let inserted = self.reader.statements.with((what, record), insert).flatten();
            inserted.map_err(|error| self.met(&error, group))?;
        }
        Ok(())
    }

    /// What an error of an insert means.
    fn met(&self, error: &rusqlite::Error, rows: &[&Row]) -> EngineError {
        if !is_duplicate(error) {
            return self.reader.options.failed(error);
        }
        let keys: Vec<Key> = rows.iter().map(|row| row.key()).collect();
        EngineError::Conflict(existing(keys, |reads| self.reader.answers(reads)))
    }

    fn run(&self, kind: Kind, values: &[Value<'_>]) -> Result<usize, EngineError> {
        let run = |statement: &mut CachedStatement<'_>| {
            bind(statement, values)?;
            statement.raw_execute()
        };
        let done = self.reader.statements.with(kind, run).flatten();
        done.map_err(|error| self.reader.options.failed(&error))
    }

    /// Removes a record; whether there was one.
    fn remove(&self, key: &Key) -> Result<bool, EngineError> {
        let mut values = SmallVec::<[Value<'_>; 3]>::new();
        // Parents are counted from the entries.
        let Some(record) = push_key(key, &mut values) else { return Ok(true) };
        Ok(self.run((What::Delete, record), &values)? > 0)
    }

    fn clear(&self, list: List) -> Result<(), EngineError> {
        let done = match (cleared(list), list) {
            (Some((record, of, None)), _) => self.run((What::Clear, record), &[id(of)]),
            (Some((record, of, Some((from, to)))), _) => {
                self.run((What::ClearRange, record), &[id(of), int(from), int(to)])
            }
            // Counted from the entries.
            (None, List::Parents(_)) => Ok(0),
            (None, _) => Err(self.reader.options.volume.refused(format!("{list:?} cannot be cleared"))),
        };
        done.map(drop)
    }

    /// The writes that add to what is there.
    fn add(&self, write: &Write) -> Result<(), EngineError> {
        let mut values = SmallVec::<[Value<'_>; 6]>::new();
        let Some((record, key)) = push_added(write, &mut values) else { return Ok(()) };
        let changed = self.run((What::Add, record), &values)?;
        match key {
            Key::Node(_) => must(changed == 1, || key),
            Key::Chunk(ino, index) if changed != 1 => {
                let record = format!("chunk {} {index}", ino.0 as i64);
                let reason = "slices are not of 24 bytes each".into();
                Err(self.reader.options.volume.damaged(Damage { record, reason }))
            }
            _ => Ok(()),
        }
    }
}

fn must(holds: bool, key: impl FnOnce() -> Key) -> Result<(), EngineError> {
    if holds { Ok(()) } else { Err(EngineError::Conflict(vec![key()])) }
}
