//! The reference engine: a map in memory, exactly as weak as the contract.
//!
//! Each record of a read or of a page is looked up by itself, and other threads are invited in
//! between; a commit validates what it is told to expect and nothing else. An operation that forgot
//! a guard fails here as it would on a real database.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use sluice_types::{Ino, Name, wait};

use crate::{
    engine::{
        Commit, Cursor, Engine, EngineError, Expect, Found, Hold, Limits, Notices, Page, Read, Scan, Watch,
        Write, still_holds,
    },
    schema::{Key, Notice, Row},
};

/// The in-memory engine. Clones share the records.
#[derive(Clone, Default)]
pub struct MemEngine(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rows: Mutex<BTreeMap<Key, Row>>,
    /// Where pages ended that others follow.
    pages: Mutex<Vec<Key>>,
    notice: Mutex<Messages>,
    bell: Condvar,
}

/// The last messages.
#[derive(Default)]
struct Messages {
    last: VecDeque<Notice>,
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
        wait::yield_now();
        self.0.rows.lock().get(key).cloned()
    }

    fn answer(&self, read: &Read) -> Found {
        match read {
            Read::Get(key) => Found::Row(self.get(key)),
            Read::Follow(dir, name) => {
                let entry = self.get(&Key::Entry(*dir, name.clone()));
                let node = match &entry {
                    Some(Row::Entry(_, _, to)) => self.get(&Key::Node(to.ino)),
                    _ => None,
                };
                Found::Rows(entry.into_iter().chain(node).collect())
            }
            Read::Names { dir, limit } => Found::Names(self.names(*dir, *limit)),
            Read::All(list) => {
                let keys: Vec<Key> =
                    self.0.rows.lock().keys().filter(|key| list.contains(key)).cloned().collect();
                Found::Rows(keys.iter().filter_map(|key| self.get(key)).collect())
            }
        }
    }

    /// Names of a directory, found one after the other.
    fn names(&self, dir: Ino, limit: usize) -> Vec<Name> {
        let mut names: Vec<Name> = Vec::new();
        while names.len() < limit {
            wait::yield_now();
            let Some(next) = self.entry_after(dir, names.last()) else { break };
            names.extend(name_of(&next));
        }
        names
    }

    /// The first entry of a directory behind a name.
    fn entry_after(&self, dir: Ino, name: Option<&Name>) -> Option<Key> {
        let rows = self.0.rows.lock();
        let mut entries = rows.range(entry_range(dir)).map(|(key, _)| key);
        entries.find(|key| name.is_none() || name_of(key).as_ref() > name).cloned()
    }

    /// The keys of one page of a scan, behind `after`; whether there are more.
    fn page(&self, scan: Scan, after: Option<&Key>, limit: usize) -> (Vec<Key>, bool) {
        let rows = self.0.rows.lock();
        let whole = match scan {
            Scan::Entries { dir, .. } => Some(entry_range(dir)),
            _ => None,
        };
        let first = whole.as_ref().map_or(Bound::Unbounded, |range| Bound::Included(&range.start));
        let end = whole.as_ref().map_or(Bound::Unbounded, |range| Bound::Excluded(&range.end));
        let range = (after.map_or(first, Bound::Excluded), end);
        let mut keys = rows.range::<Key, _>(range).map(|(key, _)| key).filter(|key| scanned(scan, key));
        let page = keys.by_ref().take(limit).cloned().collect();
        (page, keys.next().is_some())
    }
}

fn entry_range(dir: Ino) -> std::ops::Range<Key> {
    Key::Entry(dir, Name::stored(&[]))..Key::Entry(Ino(dir.0 + 1), Name::stored(&[]))
}

fn name_of(key: &Key) -> Option<Name> {
    if let Key::Entry(_, name) = key { Some(name.clone()) } else { None }
}

/// Which of the ends of pages a cursor means.
fn cursor_place(cursor: &Cursor) -> Option<usize> {
    cursor.0.as_slice().try_into().ok().map(usize::from_be_bytes)
}

/// Whether the record of that key belongs to a scan.
fn scanned(scan: Scan, key: &Key) -> bool {
    match (scan, key) {
        (Scan::Entries { dir, .. }, Key::Entry(of, _)) => dir == *of,
        (Scan::Nodes, Key::Node(_))
        | (Scan::AllEntries, Key::Entry(..))
        | (Scan::Chunks, Key::Chunk(..))
        | (Scan::Symlinks, Key::Symlink(_))
        | (Scan::Xattrs, Key::Xattr(..))
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
        Limits { lanes: 4, batch: 256, notices: Notices::Push }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        Ok(reads.iter().map(|read| self.answer(read)).collect())
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        wait::yield_now();
        let mut rows = self.0.rows.lock();
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
        if let Some(notice) = commit.notice() {
            let mut messages = self.0.notice.lock();
            messages.sent += 1;
            messages.last.push_back(notice);
            if messages.last.len() > MESSAGES {
                messages.last.pop_front();
            }
            self.0.bell.notify_all();
        }
        Ok(())
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        // The cursor is a number by which the key is found at which the last page ended.
        let after = from.and_then(|cursor| self.0.pages.lock().get(cursor_place(cursor)?).cloned());
        let (keys, more) = self.page(scan, after.as_ref(), limit.max(1));
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        for key in &keys {
            let Some(row) = self.get(key) else { continue };
            let node = match (scan, &row) {
                (Scan::Entries { nodes: true, .. }, Row::Entry(_, _, to)) => self.get(&Key::Node(to.ino)),
                _ => None,
            };
            page.rows.push(row);
            page.rows.extend(node);
        }
        if let (true, Some(last)) = (more, keys.last()) {
            let mut pages = self.0.pages.lock();
            pages.push(last.clone());
            page.next = Some(Cursor((pages.len() - 1).to_be_bytes().to_vec()));
        }
        Ok(page)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn harden(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.0.rows.lock().clear();
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        let seen = self.0.notice.lock().sent;
        Ok(Box::new(MemWatch { engine: self.clone(), seen }))
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
        _ => {
            let Some(key) = write.base() else { return };
            if let Some(row) = write.add_to(rows.remove(&key)) {
                rows.insert(key, row);
            }
        }
    }
}

struct MemWatch {
    engine: MemEngine,
    seen: usize,
}

impl Watch for MemWatch {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let mut messages = self.engine.0.notice.lock();
        if messages.sent == self.seen {
            wait::wait_for(&self.engine.0.bell, &mut messages, timeout);
        }
        let new = messages.sent - self.seen;
        self.seen = messages.sent;
        let Some(known) = messages.last.len().checked_sub(new) else { return Ok(vec![Notice::anything()]) };
        let notices = messages.last.range(known..).cloned().collect();
        Ok(notices)
    }
}
