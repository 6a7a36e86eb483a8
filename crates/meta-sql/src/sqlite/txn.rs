//! A transaction: it holds the database's write lock from its first read to its commit.
//!
//! What must stay true: under that lock nothing read can change, so expectations read here need no second look; all
//! others are looked up before the first write. Whatever fails, nothing is committed.

use rusqlite::Connection;
use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, List, Read, Txn, Write, still_holds},
    schema::{Key, Row},
};
use sluice_types::Ino;

use super::{
    connect::{Db, Writer},
    read::Reader,
    write::Writing,
};

pub(super) struct SqliteTxn<'e> {
    db: &'e Db,
    /// The connection, once the write lock is held.
    writer: Option<Writer<'e>>,
    seen: FxHashSet<Key>,
    seen_dirs: FxHashSet<Ino>,
    seen_lists: FxHashSet<List>,
}

impl<'e> SqliteTxn<'e> {
    pub(super) fn new(db: &'e Db) -> Self {
        Self {
            db,
            writer: None,
            seen: FxHashSet::default(),
            seen_dirs: FxHashSet::default(),
            seen_lists: FxHashSet::default(),
        }
    }

    /// The connection with the write lock held.
    fn hold(&mut self) -> Result<&Connection, EngineError> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let writer = self.db.writer()?;
                run(&writer, "BEGIN IMMEDIATE").map_err(|error| self.db.options.failed(&error))?;
                writer
            }
        };
        Ok(self.writer.insert(writer))
    }

    fn note(&mut self, read: &Read, found: &Found) {
        match read {
            Read::Get(key, _) => drop(self.seen.insert(key.clone())),
            Read::Follow(dir, name, _) => {
                self.seen.insert(Key::Entry(*dir, name.clone()));
                if let Found::Rows(rows) = found
                    && let Some(Row::Entry(_, _, entry)) = rows.first()
                {
                    self.seen.insert(Key::Node(entry.ino));
                }
            }
            Read::Names { dir, .. } => drop(self.seen_dirs.insert(*dir)),
            Read::All(list, _) => drop(self.seen_lists.insert(*list)),
        }
    }

    fn is_seen(&self, expect: &Expect) -> bool {
        match expect {
            Expect::Row(_, Hold::None) => true,
            Expect::Row(row, _) => self.seen.contains(&row.key()),
            Expect::Absent(key) => self.seen.contains(key),
            Expect::Vacant(dir) => self.seen_dirs.contains(dir),
            Expect::Same(list, _) => self.seen_lists.contains(list),
        }
    }
}

impl Txn for SqliteTxn<'_> {
    fn read(&mut self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let options = &self.db.options;
        let reader = Reader { connection: self.hold()?, options };
        let found = reads.iter().map(|read| reader.answer(read)).collect::<Result<Vec<_>, _>>()?;
        for (read, found) in reads.iter().zip(&found) {
            self.note(read, found);
        }
        Ok(found)
    }

    fn commit(mut self: Box<Self>, commit: &Commit) -> Result<(), EngineError> {
        self.hold()?;
        let Some(writer) = &self.writer else { return Ok(()) };
        let reader = Reader { connection: writer, options: &self.db.options };
        let mut broken = Vec::new();
        for expect in commit.expects.iter().filter(|expect| !self.is_seen(expect)) {
            if !holds(reader, expect, commit)? {
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

/// Whether an expectation that was not read under this lock holds.
fn holds(reader: Reader<'_>, expect: &Expect, commit: &Commit) -> Result<bool, EngineError> {
    Ok(match expect {
        Expect::Row(then, hold) => reader.get(&then.key())?.is_some_and(|now| still_holds(*hold, then, &now)),
        Expect::Absent(key) => reader.get(key)?.is_none(),
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
