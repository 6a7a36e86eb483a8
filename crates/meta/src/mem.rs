//! The reference engine: a map in memory, exactly as weak as the contract.
//!
//! Each record of a read is looked up by itself, and other threads are invited in between; a commit validates what it
//! is told to expect and nothing else. An operation that forgot a guard fails here as it would on a real database.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use sluice_types::{Ino, Name};

use crate::{
    engine::{
        Commit, Cursor, Engine, EngineError, Expect, Found, Hold, Limits, News, Page, Read, Scan, Txn, Watch,
        Write, still_holds,
    },
    schema::{Counter, Key, Row, Told},
};

/// The in-memory engine. Clones share the records.
#[derive(Clone, Default)]
pub struct MemEngine(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rows: Mutex<BTreeMap<Key, Row>>,
    told: Mutex<Messages>,
    bell: Condvar,
}

/// The last messages.
#[derive(Default)]
struct Messages {
    last: VecDeque<Told>,
    /// How many there were.
    sent: usize,
}

/// Messages kept for listeners that are slow.
const MESSAGES: usize = 4096;

impl MemEngine {
    /// An empty volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every record as it is now.
    pub fn records(&self) -> BTreeMap<Key, Row> {
        self.0.rows.lock().clone()
    }

    fn get(&self, key: &Key) -> Option<Row> {
        std::thread::yield_now();
        self.0.rows.lock().get(key).cloned()
    }

    fn answer(&self, read: &Read) -> Found {
        match read {
            Read::Get(key, _) => Found::Row(self.get(key)),
            Read::Follow(dir, name, _) => {
                let entry = self.get(&Key::Entry(*dir, name.clone()));
                let node = match &entry {
                    Some(Row::Entry(_, _, to)) => self.get(&Key::Node(to.ino)),
                    _ => None,
                };
                Found::Rows(entry.into_iter().chain(node).collect())
            }
            Read::Names { dir, limit } => {
                let rows = self.0.rows.lock();
                let entries = rows.range(entry_range(*dir)).take(*limit);
                Found::Names(entries.filter_map(|(key, _)| name_of(key)).collect())
            }
            Read::All(list, _) => Found::Rows(
                self.0.rows.lock().values().filter(|row| list.contains(&row.key())).cloned().collect(),
            ),
        }
    }
}

fn entry_range(dir: Ino) -> std::ops::Range<Key> {
    Key::Entry(dir, Name::stored(&[]))..Key::Entry(Ino(dir.0 + 1), Name::stored(&[]))
}

fn name_of(key: &Key) -> Option<Name> {
    if let Key::Entry(_, name) = key { Some(name.clone()) } else { None }
}

/// Whether the record of that key belongs to a scan.
fn scanned(scan: Scan, key: &Key) -> bool {
    match (scan, key) {
        (Scan::Entries { dir, .. }, Key::Entry(of, _)) => dir == *of,
        (Scan::Nodes, Key::Node(_))
        | (Scan::AllEntries, Key::Entry(..))
        | (Scan::Chunks, Key::Chunk(..))
        | (Scan::SliceRefs, Key::SliceRef(..))
        | (Scan::DelFiles, Key::DelFile(..))
        | (Scan::DelSlices, Key::DelSlices(..))
        | (Scan::Sessions, Key::Session(_))
        | (Scan::Sustained, Key::Sustained(..))
        | (Scan::Detached, Key::Detached(_))
        | (Scan::Acls, Key::Acl(_))
        | (Scan::DirStats, Key::DirStat(_))
        | (Scan::Quotas, Key::Quota(_))
        | (Scan::Writers, Key::Writer(..)) => true,
        _ => false,
    }
}

impl Engine for MemEngine {
    fn name(&self) -> &'static str {
        "mem"
    }

    fn limits(&self) -> Limits {
        Limits { lanes: 4, batch: 256, news: News::Messages }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn begin(&self, _lane: u16) -> Result<Box<dyn Txn + '_>, EngineError> {
        Ok(Box::new(MemTxn(self)))
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        Ok(reads.iter().map(|read| self.answer(read)).collect())
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        // The cursor is the number of matching records already returned; good enough for tests that do not delete
        // while they scan anything but entries, and entries are found again by name.
        let rows = self.0.rows.lock();
        let after: Option<Name> = from.map(|cursor| Name::stored(&cursor.0));
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        if let Scan::Entries { dir, nodes } = scan {
            let entries =
                rows.range(entry_range(dir)).filter(|(key, _)| after.is_none() || name_of(key) > after);
            for (at, (key, row)) in entries.enumerate() {
                if at == limit {
                    page.next = page
                        .rows
                        .iter()
                        .rev()
                        .find_map(|row| name_of(&row.key()))
                        .map(|n| Cursor(n.to_vec()));
                    break;
                }
                page.rows.push(row.clone());
                if let (true, Row::Entry(_, _, to)) = (nodes, row) {
                    page.rows.extend(rows.get(&Key::Node(to.ino)).cloned());
                }
                debug_assert!(matches!(key, Key::Entry(..)));
            }
        } else {
            page.rows.extend(rows.iter().filter(|(key, _)| scanned(scan, key)).map(|(_, row)| row.clone()));
        }
        Ok(page)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn harden(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        let seen = self.0.told.lock().sent;
        Ok(Box::new(MemWatch { engine: self.clone(), seen }))
    }
}

struct MemTxn<'e>(&'e MemEngine);

impl Txn for MemTxn<'_> {
    fn read(&mut self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.0.read(reads)
    }

    fn commit(self: Box<Self>, commit: &Commit) -> Result<(), EngineError> {
        std::thread::yield_now();
        let mut rows = self.0.0.rows.lock();
        let conflicts = broken(&rows, commit);
        if !conflicts.is_empty() {
            return Err(EngineError::Conflict(conflicts));
        }
        if let Some(step) = commit.step {
            rows.insert(Key::Writer(step.writer, step.lane), Row::Writer(step.writer, step.lane, step.to));
        }
        for write in &commit.writes {
            apply(&mut rows, write);
        }
        drop(rows);
        if let Some(told) = commit.told() {
            let mut messages = self.0.0.told.lock();
            messages.sent += 1;
            messages.last.push_back(told);
            if messages.last.len() > MESSAGES {
                messages.last.pop_front();
            }
            self.0.0.bell.notify_all();
        }
        Ok(())
    }
}

/// Keys of the expectations and preconditions that do not hold.
fn broken(rows: &BTreeMap<Key, Row>, commit: &Commit) -> Vec<Key> {
    let mut conflicts = Vec::new();
    if let Some(step) = commit.step {
        let key = Key::Writer(step.writer, step.lane);
        if rows.get(&key) != Some(&Row::Writer(step.writer, step.lane, step.from)) {
            conflicts.push(key);
        }
    }
    for expect in &commit.expects {
        let holds = match expect {
            Expect::Row(row, hold) => {
                *hold == Hold::None || rows.get(&row.key()).is_some_and(|now| still_holds(*hold, row, now))
            }
            Expect::Absent(key) => !rows.contains_key(key),
            Expect::Same(list, then) => {
                let now: Vec<&Row> = rows.values().filter(|row| list.contains(&row.key())).collect();
                now.len() == then.len() && now.iter().all(|row| then.contains(row))
            }
            Expect::Vacant(dir) => rows.range(entry_range(*dir)).all(|(key, _)| {
                commit.writes.iter().any(|write| matches!(write, Write::Delete(k) if k == key))
            }),
        };
        if !holds {
            conflicts.push(expect.key());
        }
    }
    for write in &commit.writes {
        let (key, wanted) = match write {
            Write::Insert(row) => (row.key(), false),
            Write::Delete(key) => (key.clone(), true),
            Write::Bump { ino, .. } => (Key::Node(*ino), true),
            _ => continue,
        };
        if rows.contains_key(&key) != wanted {
            conflicts.push(key);
        }
    }
    conflicts
}

fn apply(rows: &mut BTreeMap<Key, Row>, write: &Write) {
    match write {
        Write::Insert(row) | Write::Put(row) => drop(rows.insert(row.key(), row.clone())),
        Write::Delete(key) | Write::Discard(key) => drop(rows.remove(key)),
        Write::Clear(list) => rows.retain(|key, _| !list.contains(key)),
        Write::Bump { ino, nlink, time } => {
            if let Some(Row::Node(_, attr)) = rows.get_mut(&Key::Node(*ino)) {
                attr.nlink = attr.nlink.saturating_add_signed(*nlink);
                if let Some(time) = *time {
                    attr.mtime = attr.mtime.max(time);
                    attr.ctime = attr.ctime.max(time);
                }
            }
        }
        Write::Count(counter, by) => {
            let start = i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk));
            let row = rows.entry(Key::Counter(*counter)).or_insert(Row::Counter(*counter, start));
            if let Row::Counter(_, value) = row {
                *value += by;
            }
        }
        Write::Refer(id, size, by) => {
            let row = rows.entry(Key::SliceRef(*id, *size)).or_insert(Row::SliceRef(*id, *size, 1));
            if let Row::SliceRef(_, _, refs) = row {
                *refs += by;
            }
        }
        Write::Link(ino, parent, by) => {
            let row = rows.entry(Key::Parents(*ino, *parent)).or_insert(Row::Parents(*ino, *parent, 0));
            if let Row::Parents(_, _, count) = row {
                *count += by;
            }
        }
        Write::Use(ino, by) => {
            if let Some(Row::DirStat(_, stat)) = rows.get_mut(&Key::DirStat(*ino)) {
                *stat = stat.plus(*by);
            }
        }
        Write::Charge(key, space, inodes) => {
            let at = Key::Quota(*key);
            if let Some(fresh) = key.kept() {
                rows.entry(at.clone()).or_insert(Row::Quota(*key, fresh));
            }
            if let Some(Row::Quota(_, quota)) = rows.get_mut(&at) {
                quota.charge(*space, *inodes);
            }
        }
        Write::Append(ino, index, slices) => {
            let row = rows.entry(Key::Chunk(*ino, *index)).or_insert(Row::Chunk(*ino, *index, Vec::new()));
            if let Row::Chunk(_, _, records) = row {
                records.extend_from_slice(slices);
            }
        }
        Write::Tell(_) => {}
    }
}

struct MemWatch {
    engine: MemEngine,
    seen: usize,
}

impl Watch for MemWatch {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Told>, EngineError> {
        let mut messages = self.engine.0.told.lock();
        if messages.sent == self.seen {
            self.engine.0.bell.wait_for(&mut messages, timeout);
        }
        let new = messages.sent - self.seen;
        self.seen = messages.sent;
        let Some(known) = messages.last.len().checked_sub(new) else { return Ok(vec![Told::anything()]) };
        let news = messages.last.range(known..).cloned().collect();
        Ok(news)
    }
}
