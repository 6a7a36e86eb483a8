//! The reference engine: a map in memory that guarantees no more than the contract.
//!
//! Each record of a read, a list or a page is looked up separately, and other threads may run in
//! between. A commit checks only what it is told to expect. So an operation that forgot a guard
//! fails here as it would on a real database. In a simulation, a random order is used for the
//! records of a list ([`MemEngine::drawn`]). Otherwise it is the order of the keys.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use sluice_types::{Ino, Name, wait};

use crate::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Frozen, Limits, LogLine, Notices, Page, Read,
        Scan, Snapshot, Watch, Write,
    },
    schema::{Key, Notice, Row},
};

/// The in-memory engine. Clones share the records.
#[derive(Clone, Default)]
pub struct MemEngine(Arc<Shared>);

/// Draws a number below another.
type Draw = Box<dyn Fn(usize) -> usize + Send + Sync>;

/// Keys from one to another.
type Range<'k> = (Bound<&'k Key>, Bound<&'k Key>);

/// All keys.
const ALL: Range<'_> = (Bound::Unbounded, Bound::Unbounded);

#[derive(Default)]
struct Shared {
    rows: Mutex<BTreeMap<Key, Row>>,
    /// How many commits changed them.
    commits: AtomicU64,
    /// Decides in which order the records of a list are looked up.
    draw: Option<Draw>,
    /// The keys at which pages ended that others follow.
    pages: Mutex<Vec<Key>>,
    log: Mutex<Log>,
    notice: Mutex<Messages>,
    bell: Condvar,
}

/// The change log.
#[derive(Default)]
struct Log {
    lines: VecDeque<LogLine>,
    last: u64,
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

    /// An empty volume. `draw` decides in which order the records of a list are looked up, and
    /// which of those that appear meanwhile are missed; it returns a number below its argument.
    pub fn drawn(draw: impl Fn(usize) -> usize + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { draw: Some(Box::new(draw)), ..Shared::default() }))
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
            Read::Names { dir, limit } => {
                let range = entry_range(*dir);
                let bounds = (Bound::Included(&range.start), Bound::Excluded(&range.end));
                let rows = self.list(bounds, *limit, |_| true);
                Found::Names(rows.iter().filter_map(|row| name_of(&row.key())).collect())
            }
            Read::All(list) => Found::Rows(self.list(ALL, usize::MAX, |key| list.contains(key))),
        }
    }

    /// Up to `limit` records of a range, each looked up by itself.
    fn list(&self, range: Range<'_>, limit: usize, wanted: impl Fn(&Key) -> bool) -> Vec<Row> {
        match &self.0.draw {
            Some(draw) => self.list_drawn(draw, range, limit, wanted),
            None => self.list_in_order(range, limit, wanted),
        }
    }

    fn list_in_order(&self, range: Range<'_>, limit: usize, wanted: impl Fn(&Key) -> bool) -> Vec<Row> {
        let mut found: Vec<Row> = Vec::new();
        let mut last: Option<Key> = None;
        while found.len() < limit {
            wait::yield_now();
            let rows = self.0.rows.lock();
            let begin = last.as_ref().map_or(range.0, Bound::Excluded);
            let next = rows.range::<Key, _>((begin, range.1)).find(|(key, _)| wanted(key));
            let Some((key, row)) = next else { break };
            found.push(row.clone());
            last = Some(key.clone());
        }
        found
    }

    /// As the contract allows: each record is looked up at a different time, in any order. A record
    /// that appears during the call may be missed.
    fn list_drawn(
        &self,
        draw: &Draw,
        range: Range<'_>,
        limit: usize,
        wanted: impl Fn(&Key) -> bool,
    ) -> Vec<Row> {
        let mut found = Vec::new();
        let (mut met, mut left) = (BTreeSet::new(), Vec::new());
        let mut looked = None;
        while found.len() < limit {
            let rows = self.0.rows.lock();
            let commits = self.0.commits.load(Ordering::Relaxed);
            if looked != Some(commits) {
                for (key, _) in rows.range::<Key, _>(range).filter(|(key, _)| wanted(key)) {
                    if met.insert(key.clone()) && (looked.is_none() || draw(2) == 0) {
                        left.push(key.clone());
                    }
                }
                looked = Some(commits);
            }
            drop(rows);
            if left.is_empty() {
                break;
            }
            let key = left.swap_remove(draw(left.len()));
            found.extend(self.get(&key));
        }
        found
    }

    /// The records of one page of a scan, starting after the key `after`, and the key at which it
    /// ends if there are more.
    fn page(&self, scan: Scan, after: Option<&Key>, limit: usize) -> (Vec<Row>, Option<Key>) {
        let whole = match scan {
            Scan::Entries { dir, .. } => Some(entry_range(dir)),
            _ => None,
        };
        let first = whole.as_ref().map_or(Bound::Unbounded, |range| Bound::Included(&range.start));
        let end = whole.as_ref().map_or(Bound::Unbounded, |range| Bound::Excluded(&range.end));
        let begin = after.map_or(first, Bound::Excluded);
        let next = {
            let rows = self.0.rows.lock();
            let mut keys = rows.range::<Key, _>((begin, end)).map(|(key, _)| key);
            let last = keys.by_ref().filter(|key| scan.contains(key)).nth(limit - 1).cloned();
            last.filter(|_| keys.any(|key| scan.contains(key)))
        };
        let end = next.as_ref().map_or(end, Bound::Included);
        (self.list((begin, end), usize::MAX, |key| scan.contains(key)), next)
    }
}

fn entry_range(dir: Ino) -> std::ops::Range<Key> {
    Key::Entry(dir, Name::stored(&[]))..Key::Entry(Ino(dir.0 + 1), Name::stored(&[]))
}

fn name_of(key: &Key) -> Option<Name> {
    if let Key::Entry(_, name) = key { Some(name.clone()) } else { None }
}

/// Which of the page ends a cursor refers to.
fn cursor_place(cursor: &Cursor) -> Option<usize> {
    cursor.0.as_slice().try_into().ok().map(usize::from_be_bytes)
}

impl Engine for MemEngine {
    fn name(&self) -> &'static str {
        "mem"
    }

    fn limits(&self) -> Limits {
        Limits { lanes: 4, batch: 256, notices: Notices::Push }
    }

    fn sorts_names(&self) -> bool {
        self.0.draw.is_none()
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
        let broken =
            commit.conditions().filter(|condition| !condition.holds(&at_once(&rows, &condition.read)));
        let conflicts: Vec<Key> = broken.map(|condition| condition.key).collect();
        if !conflicts.is_empty() {
            return Err(EngineError::Conflict(conflicts));
        }
        if let Some(step) = commit.step {
            rows.insert(Key::Writer(step.writer, step.lane), Row::Writer(step.writer, step.lane, step.to));
        }
        for write in &commit.writes {
            apply(&mut rows, write);
            if let Write::Log(text) = write {
                self.0.log.lock().append(text);
            }
        }
        self.0.commits.fetch_add(1, Ordering::Relaxed);
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
        // The cursor is an index into the keys at which pages ended.
        let after = from.and_then(|cursor| self.0.pages.lock().get(cursor_place(cursor)?).cloned());
        let (rows, more) = self.page(scan, after.as_ref(), limit.max(1));
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        for row in rows {
            let node = match (scan, &row) {
                (Scan::Entries { nodes: true, .. }, Row::Entry(_, _, to)) => self.get(&Key::Node(to.ino)),
                _ => None,
            };
            page.rows.push(row);
            page.rows.extend(node);
        }
        if let Some(last) = more {
            let mut pages = self.0.pages.lock();
            pages.push(last);
            page.next = Some(Cursor((pages.len() - 1).to_be_bytes().to_vec()));
        }
        Ok(page)
    }

    fn snapshot(&self, _: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        let rows = Mutex::new(self.records());
        Ok(Some(Arc::new(Frozen(Self(Arc::new(Shared { rows, ..Shared::default() }))))))
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.0.rows.lock().clear();
        *self.0.log.lock() = Log::default();
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        let seen = self.0.notice.lock().sent;
        Ok(Box::new(MemWatch { engine: self.clone(), seen }))
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }
}

impl Log {
    fn append(&mut self, text: &str) {
        self.last += 1;
        self.lines.push_back(LogLine { number: self.last, text: text.to_owned().into() });
    }
}

impl ChangeLog for MemEngine {
    fn last(&self) -> Result<u64, EngineError> {
        Ok(self.0.log.lock().last)
    }

    fn count(&self) -> Result<u64, EngineError> {
        Ok(self.0.log.lock().lines.len() as u64)
    }

    fn lines(&self, after: u64, limit: usize) -> Result<Vec<LogLine>, EngineError> {
        let log = self.0.log.lock();
        Ok(log.lines.iter().filter(|line| line.number > after).take(limit).cloned().collect())
    }

    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.0.log.lock().lines.retain(|line| line.number > to);
        Ok(())
    }
}

/// The answer to a read from one state. Conditions need only these kinds of reads.
fn at_once(rows: &BTreeMap<Key, Row>, read: &Read) -> Found {
    match read {
        Read::Get(key) => Found::Row(rows.get(key).cloned()),
        Read::Names { dir, limit } => {
            let names = rows.range(entry_range(*dir)).filter_map(|(key, _)| name_of(key));
            Found::Names(names.take(*limit).collect())
        }
        Read::All(list) => {
            let all = rows.iter().filter(|(key, _)| list.contains(key));
            Found::Rows(all.map(|(_, row)| row.clone()).collect())
        }
        Read::Follow(..) => Found::nothing(read),
    }
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
