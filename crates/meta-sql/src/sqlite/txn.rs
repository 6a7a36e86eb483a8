//! A transaction: it holds the database's write lock from its first read to its commit.
//!
//! What must stay true: every expectation is checked before the first write, against what was read
//! under the lock, for that cannot change, or by looking it up. Whatever fails, nothing is
//! committed.

use rusqlite::Connection;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, Read, Txn, Write, still_holds},
    schema::{Key, Row},
};

use super::{
    connect::{Db, Writer},
    read::Reader,
    statements::Statements,
    write::Writing,
};

pub(super) struct SqliteTxn<'e> {
    db: &'e Db,
    /// The connection, once the write lock is held.
    writer: Option<Writer<'e>>,
    /// Records read under the lock.
    seen: FxHashMap<Key, Option<Row>>,
}

impl<'e> SqliteTxn<'e> {
    pub(super) fn new(db: &'e Db) -> Self {
        Self { db, writer: None, seen: FxHashMap::default() }
    }

    /// The connection with the write lock held.
    fn hold(&mut self) -> Result<&Connection, EngineError> {
        let writer = if let Some(writer) = self.writer.take() {
            writer
        } else {
            let writer = self.db.writer()?;
            run(&writer, "BEGIN IMMEDIATE").map_err(|error| self.db.options.failed(&error))?;
            writer
        };
        Ok(self.writer.insert(writer))
    }

    /// Remembers what was found.
    fn note(&mut self, read: &Read, found: &Found) {
        match (read, found) {
            (Read::Get(key, _), Found::Row(row)) => drop(self.seen.insert(key.clone(), row.clone())),
            (Read::Follow(dir, name, _), Found::Rows(rows)) => {
                self.seen.insert(Key::Entry(*dir, name.clone()), rows.first().cloned());
                if let Some(Row::Entry(_, _, entry)) = rows.first() {
                    self.seen.insert(Key::Node(entry.ino), rows.get(1).cloned());
                }
            }
            _ => {}
        }
    }
}

impl Txn for SqliteTxn<'_> {
    fn read(&mut self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let options = &self.db.options;
        let statements = Statements::new(self.hold()?, options);
        let found = Reader::new(&statements).answers(reads)?;
        drop(statements);
        self.seen.reserve(2 * reads.len());
        for (read, found) in reads.iter().zip(&found) {
            self.note(read, found);
        }
        Ok(found)
    }

    fn commit(mut self: Box<Self>, commit: &Commit) -> Result<(), EngineError> {
        self.hold()?;
        let Some(writer) = &self.writer else { return Ok(()) };
        let statements = Statements::new(writer, &self.db.options);
        let reader = Reader::new(&statements);
        let mut broken = Vec::new();
        for expect in &commit.expects {
            if !holds(reader, &self.seen, expect, commit)? {
                broken.push(expect.key());
            }
        }
        if !broken.is_empty() {
            return Err(EngineError::Conflict(broken));
        }
        let writing = Writing::new(reader);
        if let Some(step) = commit.step {
            writing.step(step)?;
        }
        writing.apply_all(&commit.writes)?;
        run(writer, "COMMIT").map_err(|error| self.db.options.commit_failed(&error))
        // Whatever failed, the drop rolls back.
    }
}

impl Drop for SqliteTxn<'_> {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer
            && !writer.is_autocommit()
            && let Err(error) = run(writer, "ROLLBACK")
        {
            tracing::error!(%error, "SQLite could not undo a transaction");
        }
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Whether an expectation holds. What was read under the lock is not asked for again.
fn holds(
    reader: Reader<'_, '_>,
    seen: &FxHashMap<Key, Option<Row>>,
    expect: &Expect,
    commit: &Commit,
) -> Result<bool, EngineError> {
    Ok(match expect {
        Expect::Row(_, Hold::None) => true,
        Expect::Row(then, hold) => {
            let key = then.key();
            let asked = if seen.contains_key(&key) { None } else { reader.get(&key)? };
            let now = seen.get(&key).unwrap_or(&asked);
            now.as_ref().is_some_and(|now| still_holds(*hold, then, now))
        }
        Expect::Absent(key) => match seen.get(key) {
            Some(found) => found.is_none(),
            None => reader.get(key)?.is_none(),
        },
        Expect::Vacant(dir) => {
            let leaving: FxHashSet<&[u8]> = commit
                .writes
                .iter()
                .filter_map(|write| match write {
                    Write::Delete(Key::Entry(of, name)) if of == dir => Some(&name[..]),
                    _ => None,
                })
                .collect();
            let names = reader.names(*dir, leaving.len() + 1)?;
            names.iter().all(|name| leaving.contains(&name[..]))
        }
        Expect::Same(list, then) => {
            let now = reader.all(*list)?;
            now.len() == then.len() && now.iter().all(|row| then.contains(row))
        }
    })
}
