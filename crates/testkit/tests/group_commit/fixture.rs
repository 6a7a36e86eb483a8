//! A batcher over an engine, and operations small enough to see through.

use std::{sync::Arc, time::Duration};

use sluice_meta::{
    Env, Stop, View,
    batch::Batcher,
    engine::{Commit, Engine, Found, Hold, List, Read, Write},
    mem::MemEngine,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Counter, Entry, Extra, Key, LastCommits, Row, VolumeFormat},
};
use sluice_types::{Attr, FileType, FsError, Ino, ManualClock, Name, Slice, Time};
use smallvec::smallvec;

/// Identity of the tests' batcher.
pub(crate) const WRITER: u64 = 7;

/// Directories `1..=DIRS` exist.
pub(crate) const DIRS: u64 = 4;

/// Where appends go.
const LOG: Ino = Ino(1_000_000);

/// An engine with some directories and the writer registered.
pub(crate) fn store() -> MemEngine {
    let engine = MemEngine::new();
    let dir = Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time::default());
    let mut writes: Vec<Write> = (1..=DIRS).map(|ino| Write::Insert(Row::Node(Ino(ino), dir))).collect();
    writes.extend((0..16).map(|lane| Write::Insert(Row::Writer(WRITER, lane, 0))));
    engine.commit(&Commit { writes, ..Commit::default() }).unwrap();
    engine
}

/// Takes the right to commit from the tests' batcher, as another client does. `keep` says whether
/// its last commits are kept.
pub(crate) fn fence(engine: &MemEngine, keep: bool) {
    let lanes = engine.read(&[Read::All(List::Lanes(WRITER))]).unwrap().pop();
    let Some(Found::Rows(lanes)) = lanes else { panic!("no list") };
    let number = |row: &Row| if let Row::Writer(_, lane, n) = row { Some((*lane, *n)) } else { None };
    let last = LastCommits { fenced: 1, lanes: lanes.iter().filter_map(number).collect() };
    let mut writes: Vec<Write> = lanes.iter().map(|row| Write::Discard(row.key())).collect();
    if keep {
        writes.push(Write::Put(Row::Extra(Extra::LastCommits, WRITER, last.to_json().into())));
    }
    engine.commit(&Commit { writes, ..Commit::default() }).unwrap();
}

pub(crate) fn batcher(engine: Arc<dyn Engine>) -> Arc<Batcher> {
    with_timeout(engine, Duration::from_mins(2))
}

pub(crate) fn with_timeout(engine: Arc<dyn Engine>, timeout: Duration) -> Arc<Batcher> {
    let clock = Arc::new(ManualClock::new(Time { sec: 1_700_000_000, nsec: 0 }));
    let env = Arc::new(Env::new(WRITER, clock, VolumeFormat::default()));
    Arc::new(Batcher::new(engine, env, WRITER, timeout))
}

/// Makes a file as the real operation does: guards the directory, inserts, bumps, counts. Also
/// appends its number to a log that nothing protects, so that an operation done twice shows.
#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub dir: u64,
    pub name: String,
    pub ino: u64,
}

impl Op for Create {
    type Out = u64;
    const NAME: &'static str = "create";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Dir(Ino(self.dir))]
    }

    fn run(&self, view: &mut View<'_>) -> Result<u64, Stop> {
        let name = Name::new(self.name.as_bytes())?;
        if view.node(Ino(self.dir), Hold::Guard)?.is_none() {
            return Err(FsError::NotFound.into());
        }
        if view.entry(Ino(self.dir), &name, Hold::None)?.is_some() {
            return Err(FsError::Exists.into());
        }
        let now = view.now();
        let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(self.dir), now);
        view.insert(Row::Node(Ino(self.ino), attr));
        view.insert(Row::Entry(Ino(self.dir), name, Entry { kind: FileType::File, ino: Ino(self.ino) }));
        view.write(Write::Bump { ino: Ino(self.dir), nlink: 1, time: Some(now) });
        view.write(Write::Count(Counter::TotalInodes, 1));
        view.write(Write::Append(LOG, 0, vec![Slice::whole(0, self.ino, 1)]));
        Ok(self.ino)
    }
}

/// Reads a node, adds one, and writes it back, relying on its conflict key alone if `hold` says so.
#[derive(Clone, Debug)]
pub(crate) struct Increment {
    pub ino: u64,
    pub hold: Hold,
}

impl Op for Increment {
    type Out = u32;
    const NAME: &'static str = "increment";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(Ino(self.ino))]
    }

    fn run(&self, view: &mut View<'_>) -> Result<u32, Stop> {
        let Some(mut attr) = view.node(Ino(self.ino), self.hold)? else {
            return Err(FsError::NotFound.into());
        };
        attr.nlink += 1;
        view.put(Row::Node(Ino(self.ino), attr));
        Ok(attr.nlink)
    }
}

/// Appends a number to a chunk: shows order.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub ino: u64,
    pub id: u64,
    /// Further conflict keys besides that of the file.
    pub also: Vec<u64>,
}

impl Append {
    pub(crate) fn new(ino: u64, id: u64) -> Self {
        Self { ino, id, also: vec![] }
    }
}

impl Op for Append {
    type Out = ();
    const NAME: &'static str = "append";

    fn conflict_keys(&self) -> ConflictKeys {
        std::iter::once(&self.ino).chain(&self.also).map(|ino| ConflictKey::Node(Ino(*ino))).collect()
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        view.write(Write::Append(Ino(self.ino), 0, vec![Slice::whole(0, self.id, 1)]));
        Ok(())
    }
}

/// Ids in the chunk of `ino`, in order.
pub(crate) fn appended(engine: &MemEngine, ino: u64) -> Vec<u64> {
    match engine.records().get(&Key::Chunk(Ino(ino), 0)) {
        Some(Row::Chunk(_, _, records)) => records.iter().map(|slice| slice.id).collect(),
        _ => vec![],
    }
}

/// Ids of the creates that happened, in order, once for each time they happened.
pub(crate) fn log(engine: &MemEngine) -> Vec<u64> {
    appended(engine, LOG.0)
}

pub(crate) fn node(engine: &MemEngine, ino: u64) -> Option<Attr> {
    match engine.records().get(&Key::Node(Ino(ino))) {
        Some(Row::Node(_, attr)) => Some(*attr),
        _ => None,
    }
}

/// Asserts that directories, entries, nodes and counters agree with the files in the log.
pub(crate) fn assert_consistent(engine: &MemEngine, context: &str) {
    let mut done = log(engine);
    let records = engine.records();
    let entries: Vec<(Ino, Ino)> = records
        .values()
        .filter_map(|row| if let Row::Entry(dir, _, entry) = row { Some((*dir, entry.ino)) } else { None })
        .collect();
    let count = done.len();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), count, "an operation happened twice: {context}");
    assert_eq!(entries.len(), count, "entries: {context}");
    for (_, ino) in &entries {
        assert!(records.contains_key(&Key::Node(*ino)), "an entry without a node: {context}");
    }
    for dir in 1..=DIRS {
        let inside = entries.iter().filter(|(of, _)| *of == Ino(dir)).count();
        assert_eq!(node(engine, dir).unwrap().nlink as usize, 2 + inside, "nlink of #{dir}: {context}");
    }
    let total = match records.get(&Key::Counter(Counter::TotalInodes)) {
        Some(Row::Counter(_, n)) => *n,
        _ => 0,
    };
    assert_eq!(total as usize, count, "counter: {context}");
}

/// Runs `work` and panics if it does not end: a hang is a fault too.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let answer = work();
        let _ = done.send(());
        answer
    });
    let ended = wait.recv_timeout(limit);
    assert!(ended != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "{what} hangs");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
