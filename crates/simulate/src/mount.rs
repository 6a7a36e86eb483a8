//! One client as a mount: programs call a real [`Vfs`], and the answers are compared with the
//! history of the records.
//!
//! The content of files is not simulated. A write commits a new slice, as the data path does after
//! the blocks are stored. A read reads the list of slices. So caches, open files and the order in
//! which answers are processed are those of a mount.
//!
//! What must stay true: an answer is checked only against the guarantees of a mount. An answer of
//! the engine was true at some moment after the call began. A cached answer is not older than an
//! earlier answer to this client.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use sluice_data::{ChunkIndex as _, DataConfig, DataStore};
use sluice_meta::{
    ClientCache, Interrupt, Meta, Options,
    op::At,
    schema::{Key, Row},
};
use sluice_object::MemStore;
use sluice_types::{Attr, Caller, FsError, FsResult, Ino, Slice};
use sluice_vfs::{MetaIndex, Opened, Vfs, VfsConfig};
use tokio::runtime::{Handle, Runtime};

use crate::{
    choose::Scene,
    engine::{SimEngine, TIMEOUT},
    history::Moment,
    lower_bounds::{Known, LowerBounds, Part, content},
    names::Asked,
    plan::{ClientPlan, Step},
    start_error::StartError,
    world::{World, WorldClock},
};

mod acts;
mod shows;

/// Bytes of one write.
const WRITTEN: u32 = 4096;

/// A mount, and what its programs know.
pub(crate) struct Mount {
    at: usize,
    world: Arc<World>,
    vfs: Arc<Vfs>,
    index: Arc<MetaIndex>,
    caller: Caller,
    bounds: LowerBounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Handles whose opens were answered.
    open: Vec<OpenHandle>,
    /// The last file that was closed.
    closed: Option<Ino>,
}

/// A handle of a file.
#[derive(Clone, Copy, Debug)]
struct OpenHandle {
    fh: u64,
    ino: Ino,
    writes: bool,
}

/// A call under way, and what was known when it began.
struct Call {
    since: Moment,
    known: Known,
    interrupt: Interrupt,
}

/// Where all mounts run what they send to the store. Nothing of it is seen by the simulation.
fn runtime() -> Result<Handle, StartError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let start = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    match RUNTIME.get_or_init(start) {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(StartError::Machine(format!("no threads for the stores: {error}"))),
    }
}

impl Mount {
    /// Mounts the volume.
    pub(crate) fn open(world: &Arc<World>, at: usize) -> Result<Arc<Self>, StartError> {
        let plan = world.plan.clients[at];
        let clock = Arc::new(WorldClock(Arc::clone(world)));
        let options = Options {
            record_cache: plan.record_cache,
            client_cache: plan.cache.then(ClientCache::default),
            clock: Arc::clone(&clock) as _,
            timeout: TIMEOUT,
            ..Options::default()
        };
        let meta = Meta::open(Arc::new(SimEngine::new(Arc::clone(world), at)), options)?;
        world.opened(at, meta.sid());
        let index = MetaIndex::new(meta);
        // Programs show that they live by themselves.
        let ttl = Duration::from_secs(plan.ttl);
        let config = VfsConfig {
            attr_ttl: ttl,
            entry_ttl: ttl,
            dir_entry_ttl: ttl,
            heartbeat: Duration::from_hours(10_000),
            cleaning: false,
            clock,
            ..VfsConfig::default()
        };
        let store = Arc::new(MemStore::new());
        let runtime = Some(runtime()?);
        let data = DataStore::open(&DataConfig::default(), store, Arc::clone(&index) as _, runtime)
            .map_err(|error| StartError::Machine(format!("no data store: {error}")))?;
        let vfs = Vfs::new(Arc::clone(&index), data, config);
        if plan.cache {
            vfs.on_invalidate(|_, _| true);
        }
        let (world, caller) = (Arc::clone(world), Caller::client());
        Ok(Arc::new(Self {
            at,
            world,
            vfs,
            index,
            caller,
            bounds: LowerBounds::default(),
            state: Mutex::default(),
        }))
    }

    fn plan(&self) -> ClientPlan {
        self.world.plan.clients[self.at]
    }

    fn below(&self, bound: usize) -> usize {
        self.world.sched.below(bound as u64) as usize
    }

    fn fault(&self, what: &str) {
        self.world.fault(format!("mount {} {what}", self.at));
    }

    fn begin(&self) -> Call {
        let interrupt = self.world.begins(self.at);
        Call { since: self.world.moment(), known: self.bounds.known(), interrupt }
    }

    /// Whether every answer is asked of the engine, and every commit does one operation.
    fn is_exact(&self) -> bool {
        let plan = self.plan();
        plan.batch == 1 && !plan.cache && plan.ttl == 0
    }

    /// Whether commits do one operation each, so that all that is shown was once so.
    fn is_single(&self) -> bool {
        self.world.plan.clients.iter().all(|client| client.batch == 1)
    }

    /// Part of a record was shown as one that `fits`: not before what was known when the call
    /// began, and since then if it was asked of the engine.
    fn shown(&self, call: &Call, part: Part, asked: bool, fits: impl Fn(Option<&Row>) -> bool) -> bool {
        let known = call.known.get(&part).copied().unwrap_or(0);
        let least = if asked { known.max(call.since) } else { known };
        self.bounds.shown(&self.world, part, least, fits)
    }

    /// Attributes of a file were shown.
    fn attr_shown(&self, call: &Call, ino: Ino, attr: &Attr, asked: bool, what: &str) {
        if !attr.is_file() || !self.is_single() {
            return;
        }
        // What it remembers while it follows others may lag behind what an open found.
        if self.plan().cache && !asked {
            return;
        }
        let same =
            |row: Option<&Row>| matches!(row, Some(Row::Node(_, now)) if content(now) == content(attr));
        if !self.shown(call, Part::Content(ino), asked, same) {
            self.fault(&format!("was shown old attributes of {ino} by {what}: {attr:?}"));
        }
    }

    /// An answer about names.
    fn answered(&self, call: &Call, asked: &Asked, answer: Result<Option<Ino>, &FsError>) {
        if answer == Err(&FsError::Again) {
            // A guess was wrong, and nothing was done.
            return;
        }
        self.world.log(|| format!("mount {} asked {asked:?} since {}: {answer:?}", self.at, call.since));
        if self.is_single() && !asked.may_be(&self.world, call.since, answer) {
            self.fault(&format!("was told {answer:?} of {asked:?}"));
        }
    }

    /// What one of its threads does in one round.
    pub(crate) fn work(&self) {
        for _ in 0..self.plan().steps {
            if !self.world.lives(self.at) {
                return;
            }
            self.world.sched.take_time(Duration::from_micros(self.plan().pause));
            match self.world.plan.steps.next(|bound| self.world.sched.below(bound)) {
                Step::Act => self.act(),
                Step::Open => self.open_some(),
                Step::Close => self.close_some(),
                Step::Write => self.write_some(),
                Step::Check => self.read_some(),
                Step::List => self.list_some(),
                Step::Look | Step::Several | Step::Lock | Step::Group => self.look_at_some(),
            }
        }
    }

    /// A name was shown to stand for `ino`, or for nothing.
    fn name_shown(&self, call: &Call, at: &At, ino: Option<Ino>, asked: bool, what: &str) {
        // What the mount keeps for a kernel is only told to one that has not kept it itself.
        if !self.is_single() || self.plan().ttl > 0 && !asked {
            return;
        }
        let same = |row: Option<&Row>| match row {
            Some(Row::Entry(_, _, to)) => ino == Some(to.ino),
            _ => ino.is_none(),
        };
        if !self.shown(call, Part::Name(at.dir, at.name.clone()), asked, same) {
            self.fault(&format!("was shown {ino:?} as {at:?} by {what}"));
        }
    }

    /// Looks a name up, and at the attributes of a file.
    fn look_at_some(&self) {
        let scene = Scene::of(&self.world);
        let at = scene.place();
        let call = self.begin();
        let found = self.vfs.lookup(&self.caller, &call.interrupt, at.dir, &at.name);
        self.world.log(|| format!("mount {} looks {at:?} up: {found:?}", self.at));
        match &found {
            Ok(entry) => {
                self.name_shown(&call, &at, Some(entry.ino), self.is_exact(), "a lookup");
                self.attr_shown(&call, entry.ino, &entry.attr, self.is_exact(), "a lookup");
            }
            Err(FsError::NotFound) => self.name_shown(&call, &at, None, self.is_exact(), "a lookup"),
            Err(_) => {}
        }
        if let Some(ino) = self.some_file() {
            self.look_at(ino);
        }
    }

    fn look_at(&self, ino: Ino) {
        let call = self.begin();
        let found = self.vfs.getattr(&call.interrupt, ino);
        self.world.log(|| format!("mount {} looks at {ino}: {found:?}", self.at));
        match found {
            Ok((attr, _)) => self.attr_shown(&call, ino, &attr, self.is_exact(), "getattr"),
            Err(FsError::NotFound) => self.is_gone(&call, ino),
            Err(_) => {}
        }
    }

    /// A file was said not to be there. Those who have it open may be shown what was known of it.
    fn is_gone(&self, call: &Call, ino: Ino) {
        let values = self.world.values(&Key::Node(ino), call.since);
        if self.is_exact() && values.iter().all(|(_, row)| row.is_some()) {
            self.fault(&format!("was told that {ino} is gone"));
        }
        let open = self.state.lock().open.iter().any(|handle| handle.ino == ino);
        if open && self.world.destroyer(ino) == Some(self.at) {
            self.fault(&format!("destroyed {ino}, which it has open"));
        }
    }

    /// A file that is open, that was closed last, or that has a name.
    fn some_file(&self) -> Option<Ino> {
        let state = self.state.lock();
        let (open, closed) = (state.open.clone(), state.closed);
        drop(state);
        match self.below(4) {
            0 if !open.is_empty() => Some(open[self.below(open.len())].ino),
            1 if closed.is_some() => closed,
            _ => Scene::of(&self.world).file().map(|file| file.ino),
        }
    }

    /// Opens a file by its name.
    fn open_named(&self) {
        let Some(file) = Scene::of(&self.world).file() else { return };
        let call = self.begin();
        let names = [file.at.name.clone()];
        let walked = self.vfs.walk_to_open(&self.caller, &call.interrupt, file.at.dir, &names);
        let Ok((_, Some(found))) = walked else { return };
        let opened = self.vfs.open_found(&self.caller, &call.interrupt, &found, libc::O_RDONLY);
        self.world.log(|| format!("mount {} opens {found:?} since {}: {opened:?}", self.at, call.since));
        if let Ok(opened) = opened {
            self.opened(&call, found.ino(), opened, false);
        }
    }

    fn open_some(&self) {
        if self.below(2) == 0 {
            return self.open_named();
        }
        let Some(ino) = self.some_file() else { return };
        let writes = self.below(2) == 0;
        let call = self.begin();
        let flags = if writes { libc::O_RDWR } else { libc::O_RDONLY };
        let opened = self.vfs.open(&self.caller, &call.interrupt, ino, flags);
        self.world.log(|| format!("mount {} opens {ino} since {}: {opened:?}", self.at, call.since));
        match opened {
            Ok(opened) => self.opened(&call, ino, opened, writes),
            Err(FsError::NotFound) => self.is_gone(&call, ino),
            Err(_) => {}
        }
    }

    /// An open sees all that was committed before it.
    fn opened(&self, call: &Call, ino: Ino, opened: Opened, writes: bool) {
        self.state.lock().open.push(OpenHandle { fh: opened.fh, ino, writes });
        self.bounds.raise(Part::Content(ino), call.since);
        self.bounds.raise(Part::Slices(ino), call.since);
    }

    fn some_open(&self, wanted: impl Fn(&OpenHandle) -> bool) -> Option<OpenHandle> {
        let open: Vec<OpenHandle> = self.state.lock().open.iter().copied().filter(wanted).collect();
        (!open.is_empty()).then(|| open[self.below(open.len())])
    }

    fn close_some(&self) {
        let Some(handle) = self.some_open(|_| true) else { return };
        let mut state = self.state.lock();
        let Some(at) = state.open.iter().position(|open| open.fh == handle.fh) else { return };
        state.open.swap_remove(at);
        state.closed = Some(handle.ino);
        drop(state);
        self.close(handle);
    }

    fn close(&self, handle: OpenHandle) {
        self.world.log(|| format!("mount {} closes {handle:?}", self.at));
        let closed = self.vfs.flush(handle.fh, 1).and_then(|()| self.vfs.release(handle.fh, None));
        if let Err(error) = closed {
            self.fault(&format!("cannot close {handle:?}: {error}"));
        }
    }

    /// Closes all that is open.
    pub(crate) fn close_all(&self) {
        let open = std::mem::take(&mut self.state.lock().open);
        for handle in open {
            self.close(handle);
        }
    }

    /// Commits a new slice of a file, as the data path does once it is stored.
    fn write_some(&self) {
        let Some(handle) = self.some_open(|handle| handle.writes) else { return };
        // A kernel closes no handle by which somebody writes.
        let mut state = self.state.lock();
        let Some(at) = state.open.iter().position(|open| open.fh == handle.fh) else { return };
        state.open.swap_remove(at);
        drop(state);
        self.write(handle);
        self.state.lock().open.push(handle);
    }

    fn write(&self, handle: OpenHandle) {
        let call = self.begin();
        let Ok(id) = self.index.new_slice_id(&call.interrupt) else { return };
        let slice = Slice::whole(WRITTEN * self.below(4) as u32, id, WRITTEN);
        let written = self.index.commit(handle.ino, 0, &[slice], self.world.time(), &|| true);
        self.world.log(|| format!("mount {} writes {id} to {handle:?}: {written:?}", self.at));
        if written.is_err() {
            return;
        }
        let values = self.world.values(&Key::Chunk(handle.ino, 0), call.since);
        let has = |row: &Option<Row>| matches!(row, Some(Row::Chunk(.., slices)) if slices.contains(&slice));
        match values.iter().find(|(_, row)| has(row)) {
            Some((moment, _)) => {
                self.bounds.raise(Part::Content(handle.ino), *moment);
                self.bounds.raise(Part::Slices(handle.ino), *moment);
            }
            None => self.fault(&format!("was told that slice {id} was written to {}", handle.ino)),
        }
    }

    /// Whether all that is open here is there, unless others took it away.
    pub(crate) fn check_open(&self) {
        let open = self.state.lock().open.clone();
        for handle in open {
            self.look_at(handle.ino);
        }
    }

    /// Shows that it lives.
    pub(crate) fn beat(&self) {
        let answer = self.vfs.meta().beat();
        self.world.log(|| format!("mount {} beats: {answer:?}", self.at));
    }

    /// Its session.
    pub(crate) fn sid(&self) -> u64 {
        self.vfs.meta().sid()
    }

    /// Unmounts.
    pub(crate) fn leave(&self) -> FsResult<()> {
        self.vfs.close(None)
    }
}
