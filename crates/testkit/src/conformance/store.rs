//! A new, empty store, and the helper functions that all cases use.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Cursor, Engine, EngineError, Expect, Found, List, Moment, Read, Scan, Write},
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use super::Factory;

/// How long something that must happen may take.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// A fresh store.
#[derive(Clone)]
pub struct Store {
    /// The engine under test.
    pub engine: Arc<dyn Engine>,
}

impl Store {
    /// An empty store, prepared.
    pub fn new(factory: &Factory<'_>) -> Self {
        let engine = factory();
        engine.prepare().expect("prepare");
        engine.prepare().expect("prepare again: must be harmless");
        Self { engine }
    }

    /// An empty store with these records.
    pub fn with(factory: &Factory<'_>, rows: Vec<Row>) -> Self {
        let store = Self::new(factory);
        store.insert(rows);
        store
    }

    /// Inserts records, some hundreds in each commit.
    pub fn insert(&self, rows: Vec<Row>) {
        let mut rows = rows.into_iter().map(Write::Insert).peekable();
        while rows.peek().is_some() {
            self.write(rows.by_ref().take(500).collect());
        }
    }

    /// Commits writes that must succeed.
    pub fn write(&self, writes: Vec<Write>) {
        let shown = format!("{writes:.300?}");
        if let Err(error) = self.commit(writes) {
            panic!("{}: commit of {shown}: {error}", self.engine.name());
        }
    }

    /// Commits writes without expectations.
    pub fn commit(&self, writes: Vec<Write>) -> Result<(), EngineError> {
        self.engine.commit(&Commit { writes, ..Commit::default() })
    }

    /// Reads, then commits with what the engine noted.
    pub fn read_and_commit(
        &self,
        reads: &[Read],
        expects: Vec<Expect>,
        writes: Vec<Write>,
    ) -> Result<(), EngineError> {
        let mut moment = Moment::default();
        self.engine.read_at(reads, &mut moment)?;
        self.engine.commit_at(&Commit { step: None, expects, writes }, moment)
    }

    /// A record as committed.
    pub fn get(&self, key: &Key) -> Option<Row> {
        match self.read(&[Read::Get(key.clone())]).remove(0) {
            Found::Row(row) => row,
            other => panic!("a Get was answered by {other:?}"),
        }
    }

    /// A collection as committed, sorted by key.
    pub fn all(&self, list: List) -> Vec<Row> {
        match self.read(&[Read::All(list)]).remove(0) {
            Found::Rows(rows) => sorted(rows),
            other => panic!("an All was answered by {other:?}"),
        }
    }

    /// The answers to reads.
    pub fn read(&self, reads: &[Read]) -> Vec<Found> {
        let found = self.engine.read(reads).unwrap_or_else(|e| panic!("read of {reads:.300?}: {e}"));
        assert_eq!(found.len(), reads.len(), "one answer for each question");
        found
    }

    /// All pages of a scan, each record once; `between` runs after each page but the last.
    pub fn scan_with(&self, scan: Scan, limit: usize, mut between: impl FnMut(usize)) -> BTreeMap<Key, Row> {
        let mut rows = BTreeMap::new();
        let mut cursor: Option<Cursor> = None;
        for page in 0.. {
            let answer = self.engine.scan(scan, cursor.as_ref(), limit).expect("scan");
            rows.extend(answer.rows.into_iter().map(|row| (row.key(), row)));
            cursor = answer.next;
            if cursor.is_none() {
                break;
            }
            assert!(page < 1_000_000, "{scan:?} does not end");
            between(page);
        }
        rows
    }

    /// All records of a scan.
    pub fn scan(&self, scan: Scan) -> Vec<Row> {
        self.scan_with(scan, 100, |_| {}).into_values().collect()
    }

    /// Asserts what is stored under `key`.
    pub fn assert_row(&self, key: &Key, wanted: Option<&Row>) {
        assert_eq!(self.get(key).as_ref(), wanted, "{key:?} in {}", self.engine.name());
    }

    /// The lane that the `at`th of several concurrent commits runs in.
    pub fn lane(&self, at: usize) -> u16 {
        (at % self.engine.limits().lanes.max(1)) as u16
    }
}

/// Sorted by key.
pub fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(Row::key);
    rows
}

/// Distinct valid names with a common start.
pub fn names(start: &str, count: usize) -> Vec<Name> {
    (0..count).map(|n| Name::new(format!("{start}{n}").as_bytes()).expect("valid")).collect()
}

/// A name that is valid.
pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("valid")
}

/// Asserts that `result` is a conflict which names `key`.
#[track_caller]
pub fn assert_conflict(result: &Result<(), EngineError>, key: &Key) {
    match result {
        Err(EngineError::Conflict(keys)) if keys.contains(key) => {}
        other => panic!("wanted a conflict on {key:?}, got {other:?}"),
    }
}

/// Runs `attempt` until it is neither a conflict nor a refusal for the moment.
pub fn persist(mut attempt: impl FnMut() -> Result<(), EngineError>) {
    let until = Instant::now() + TIMEOUT;
    loop {
        match attempt() {
            Ok(()) => return,
            Err(EngineError::Conflict(_) | EngineError::Unavailable { .. }) if Instant::now() < until => {}
            Err(error) => panic!("no success: {error}"),
        }
    }
}

/// The key of a node.
pub fn node(ino: u64) -> Key {
    Key::Node(Ino(ino))
}
