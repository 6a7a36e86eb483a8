//! Counts round trips, so that tests can check the expected number of each operation.

use std::{
    fmt,
    ops::Sub,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sluice_meta::engine::{
    ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Moment, Page, Read, Scan, Watch,
};

/// Numbers of calls since the engine was made, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trips {
    /// Reads, for a commit or not.
    pub reads: u64,
    /// Questions in those reads.
    pub questions: u64,
    /// Those of them that follow a name.
    pub follows: u64,
    /// Commits, whatever came of them.
    pub commits: u64,
    /// Writes in those commits.
    pub writes: u64,
    /// Commits that ended in a conflict.
    pub conflicts: u64,
    /// Pages of scans.
    pub pages: u64,
    /// Syncs.
    pub syncs: u64,
}

impl Trips {
    /// Round trips to the engine.
    pub fn total(&self) -> u64 {
        self.reads + self.commits + self.pages + self.syncs
    }
}

impl Sub for Trips {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            questions: self.questions - before.questions,
            follows: self.follows - before.follows,
            commits: self.commits - before.commits,
            writes: self.writes - before.writes,
            conflicts: self.conflicts - before.conflicts,
            pages: self.pages - before.pages,
            syncs: self.syncs - before.syncs,
        }
    }
}

impl fmt::Display for Trips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads, {} commits, {} pages", self.reads, self.commits, self.pages)
    }
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    questions: AtomicU64,
    follows: AtomicU64,
    commits: AtomicU64,
    writes: AtomicU64,
    conflicts: AtomicU64,
    pages: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    fn asked(&self, reads: &[Read]) {
        add(&self.reads, 1);
        add(&self.questions, reads.len());
        add(&self.follows, reads.iter().filter(|read| matches!(read, Read::Follow(..))).count());
    }
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// An engine that counts what it is asked. Clones share the counters.
#[derive(Clone)]
pub struct Counting {
    inner: Arc<dyn Engine>,
    counters: Arc<Counters>,
}

impl Counting {
    /// Counts what `inner` is asked.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The numbers so far.
    pub fn trips(&self) -> Trips {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        Trips {
            reads: get(&c.reads),
            questions: get(&c.questions),
            follows: get(&c.follows),
            commits: get(&c.commits),
            writes: get(&c.writes),
            conflicts: get(&c.conflicts),
            pages: get(&c.pages),
            syncs: get(&c.syncs),
        }
    }

    /// What `run` answers, and the trips it took. Others must not use the engine meanwhile.
    pub fn during<T>(&self, run: impl FnOnce() -> T) -> (T, Trips) {
        let before = self.trips();
        let answer = run();
        (answer, self.trips() - before)
    }

    /// Asserts that `run` takes exactly so many reads and commits, and no scan.
    #[track_caller]
    pub fn assert_trips<T>(&self, what: &str, reads: u64, commits: u64, run: impl FnOnce() -> T) -> T {
        let (answer, trips) = self.during(run);
        assert_eq!((trips.reads, trips.commits, trips.pages), (reads, commits, 0), "{what}: {trips}");
        answer
    }
}

impl Engine for Counting {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.inner.prepare()
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.counters.asked(reads);
        self.inner.read(reads)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        self.counters.asked(reads);
        self.inner.read_at(reads, moment)
    }

    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        add(&self.counters.commits, 1);
        add(&self.counters.writes, commit.writes.len());
        let answer = self.inner.commit_at(commit, moment);
        if matches!(answer, Err(EngineError::Conflict(_))) {
            add(&self.counters.conflicts, 1);
        }
        answer
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        add(&self.counters.pages, 1);
        self.inner.scan(scan, from, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        add(&self.counters.syncs, 1);
        self.inner.sync()
    }

    fn harden(&self) -> Result<(), EngineError> {
        self.inner.harden()
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.inner.remove_volume()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.inner.watch()
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.inner.change_log()
    }
}
