//! The door to a volume's metadata: open it, run operations, close it.
//!
//! Everything that changes goes through [`Meta::run`] and thereby through group commit; everything
//! that only looks goes through [`Meta::ask`]. What an operation takes and answers stands with the
//! operation.

use std::{panic::resume_unwind, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use sluice_types::{Attr, Clock, FileType, FsError, FsResult, Ino, SystemClock, Time, wait};

use crate::{
    batch::{Batcher, Interrupt, PATIENCE},
    beater::Beater,
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Write},
    env::Env,
    follow::ClientCache,
    heartbeat::{Grace, LIFETIME},
    ids::IdPool,
    ledger::Ledger,
    op::Op,
    recall::Recall,
    resume::{Resumed, Start, TakenUp, insist},
    schema::{Counter, DirStat, FormatError, Key, Row, Session, SessionInfo, VolumeFormat},
    view::{Batch, Stop, View},
    waiters::Waiters,
};

/// How a volume is opened.
#[derive(Clone)]
pub struct Options {
    /// Nothing may be changed, and no session is registered.
    pub read_only: bool,
    /// What other clients see of this one.
    pub info: SessionInfo,
    /// Time between two signs of life.
    pub heartbeat: Duration,
    /// How long a dead engine is waited for before an operation fails with `EIO`.
    pub patience: Duration,
    /// Whether changes may start from what this client saw last, and so save a trip. Only engines
    /// that compare at the commit make use of it.
    pub recall: bool,
    /// Whether lookups and attributes are answered from what is remembered, while [`Meta::follow`]
    /// hears what others change.
    pub client_cache: Option<ClientCache>,
    /// Where is noted what a successor must know.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// The session of a process that died, to be taken up instead of a new one.
    pub resume: Option<Resumed>,
    /// Where the time is read.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            info: SessionInfo::default(),
            heartbeat: Duration::from_secs(12),
            patience: PATIENCE,
            recall: true,
            client_cache: None,
            ledger: None,
            resume: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// [`Self::heartbeat`] in seconds, at least one.
    pub(crate) fn heartbeat_seconds(&self) -> i64 {
        self.heartbeat.as_secs().max(1) as i64
    }

    /// How long a session lasts that is not renewed, seconds.
    pub(crate) fn session_lifetime(&self) -> i64 {
        LIFETIME * self.heartbeat_seconds()
    }
}

/// Why a volume cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no volume.
    #[error("there is no volume in this {0} database; make one with `sluice format META-URL NAME`")]
    NotFormatted(&'static str),
    /// The volume cannot be used by this client.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A volume is there already.
    #[error("the database already holds volume {0}; format does not change the name of a volume")]
    Occupied(String),
    /// Somebody else changed the settings just now.
    #[error("somebody else changed the settings of volume {0} at the same time; nothing was done, try again")]
    Changed(String),
}

/// An open volume.
pub struct Meta {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) env: Arc<Env>,
    batcher: Batcher,
    pub(crate) options: Options,
    pub(crate) inodes: IdPool,
    pub(crate) slices: IdPool,
    pub(crate) waiters: Waiters,
    pub(crate) grace: Mutex<Grace>,
    pub(crate) beater: Mutex<Option<Beater>>,
    read_only: bool,
    taken_up: Option<TakenUp>,
}

impl Meta {
    /// The settings of the volume in `engine`, if there is one.
    pub fn load_format(engine: &dyn Engine) -> Result<Option<VolumeFormat>, EngineError> {
        match engine.read(&[Read::Get(Key::Setting, Hold::None)]) {
            Ok(found) => Ok(found.into_iter().find_map(|found| match found {
                Found::Row(Some(Row::Setting(format))) => Some(*format),
                _ => None,
            })),
            // Nothing can open the volume to check it.
            Err(EngineError::Corrupt { engine, record, reason }) => {
                let reason = format!(
                    "the volume's settings are damaged ({record}: {reason}); put this record back from a backup of the \
                     database, nothing else is lost"
                );
                Err(EngineError::Refused { engine, reason })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes an empty volume.
    ///
    /// # Errors
    /// [`OpenError::Occupied`] if there is one.
    pub fn format(engine: &dyn Engine, format: &VolumeFormat, now: Time) -> Result<(), OpenError> {
        Self::settle(engine, None, format, now)
    }

    /// Gives a volume other settings, made from those that it had.
    ///
    /// # Errors
    /// [`OpenError::Changed`] if it has others by now.
    pub fn reformat(
        engine: &dyn Engine,
        from: &VolumeFormat,
        to: &VolumeFormat,
        now: Time,
    ) -> Result<(), OpenError> {
        if from.name != to.name {
            return Err(OpenError::Occupied(from.name.clone()));
        }
        // Settings of a newer version would be cut to what is known here.
        from.check()?;
        Self::settle(engine, Some(from), to, now)
    }

    fn settle(
        engine: &dyn Engine,
        from: Option<&VolumeFormat>,
        format: &VolumeFormat,
        now: Time,
    ) -> Result<(), OpenError> {
        engine.prepare()?;
        let mut commit = Commit::default();
        if let Some(from) = from {
            commit.expects.push(Expect::Row(Row::Setting(from.clone().into()), Hold::Lock));
            commit.writes.push(Write::Put(Row::Setting(format.clone().into())));
        } else {
            let root = Attr::new(FileType::Dir, 0o777, 0, 0, Ino::ROOT, now);
            commit.writes.push(Write::Insert(Row::Setting(format.clone().into())));
            commit.writes.push(Write::Insert(Row::Node(Ino::ROOT, root)));
            if format.dir_stats {
                commit.writes.push(Write::Put(Row::DirStat(Ino::ROOT, DirStat::default())));
            }
            let counters = [
                (Counter::NextInode, 2),
                (Counter::NextChunk, 1),
                (Counter::NextSession, 0),
                (Counter::UsedSpace, 0),
                (Counter::TotalInodes, 0),
                (Counter::NextCleanupSlices, 0),
            ];
            commit.writes.extend(counters.map(|(counter, value)| Write::Put(Row::Counter(counter, value))));
        }
        if format.trash_days > 0 {
            let trash = engine.read(&[Read::Get(Key::Node(Ino::TRASH), Hold::None)])?;
            if matches!(trash.as_slice(), [Found::Row(None)]) {
                let attr = Attr::new(FileType::Dir, 0o555, 0, 0, Ino::ROOT, now);
                commit.writes.push(Write::Insert(Row::Node(Ino::TRASH, attr)));
            }
        }
        match engine.begin(0)?.commit(&commit) {
            Err(EngineError::Conflict(keys)) if keys.contains(&Key::Setting) => Err(match from {
                Some(from) => OpenError::Changed(from.name.clone()),
                None => Self::load_format(engine)?.map_or_else(
                    || OpenError::Changed(format.name.clone()),
                    |there| OpenError::Occupied(there.name),
                ),
            }),
            done => Ok(done?),
        }
    }

    /// Opens a volume, and registers a session unless it is only to be read, or takes up that of a
    /// process that died.
    pub fn open(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Self>, OpenError> {
        // Whoever waits for a session to go on waits for the engine, too; who mounts anew is told.
        let patience = if options.resume.is_some() { options.patience } else { Duration::ZERO };
        let until = wait::now() + patience;
        let format = insist(until, || Self::load_format(engine.as_ref()))?
            .ok_or(OpenError::NotFormatted(engine.name()))?;
        format.check()?;
        let mut read_only = options.read_only;
        let unmaintained = format.unmaintained();
        if !read_only && !unmaintained.is_empty() {
            tracing::warn!(
                "the volume uses {}, which this version does not maintain: opened read-only",
                unmaintained.join(", ")
            );
            read_only = true;
        }
        let ledger = options.ledger.clone().filter(|_| !read_only);
        let mut start = Start::default();
        if !read_only {
            insist(until, || engine.prepare())?;
            start = Start::of(engine.as_ref(), &options)?;
        }
        let sid = start.sid;
        if let Some(ledger) = &ledger {
            ledger.session(sid, engine.limits().lanes.max(1) as u16, start.fences);
        }
        let mut env = Env::new(sid, options.clock.clone(), format);
        env.set_fences(start.fences);
        env.ledger = ledger;
        let records = options.client_cache.map_or(0, |cache| 2 * cache.size);
        env.recall = (options.recall || records > 0).then(|| Recall::new(records));
        env.starts_from_recall = options.recall;
        let env = Arc::new(env);
        let batcher = Batcher::new(engine.clone(), env.clone(), sid, options.patience);
        batcher.go_on(&start.numbers);
        let waiters = Waiters::new(engine.clone());
        let grace = Mutex::new(Grace::new(options.clock.now().sec));
        let meta = Self {
            engine,
            env,
            batcher,
            options,
            inodes: IdPool::new(Counter::NextInode, 1024),
            slices: IdPool::new(Counter::NextChunk, 1 << 14),
            waiters,
            grace,
            beater: Mutex::new(None),
            read_only,
            taken_up: start.taken_up,
        };
        insist(until, || meta.reload_usage())?;
        Ok(Arc::new(meta))
    }

    /// Runs an operation that may change something.
    pub fn run<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        self.writable()?;
        self.batcher.submit(op, interrupt)
    }

    /// Runs many operations at once, on as many threads as the engine has lanes if they fill that
    /// many batches. Answers in their order.
    pub fn run_all<O: Op>(&self, mut ops: Vec<O>, interrupt: &Interrupt) -> Vec<FsResult<O::Out>> {
        if let Err(error) = self.writable() {
            return ops.iter().map(|_| Err(error.clone())).collect();
        }
        let limits = self.engine.limits();
        let threads = ops.len().div_ceil(limits.batch.max(1)).clamp(1, limits.lanes.max(1));
        let share = ops.len().div_ceil(threads);
        thread::scope(|scope| {
            let mut rest = Vec::new();
            while ops.len() > share {
                rest.push(ops.split_off(ops.len() - share));
            }
            let others: Vec<_> = rest
                .into_iter()
                .rev()
                .map(|part| scope.spawn(|| self.batcher.submit_all(part, interrupt)))
                .collect();
            let mut answers = self.batcher.submit_all(ops, interrupt);
            for other in others {
                answers.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            answers
        })
    }

    /// Runs an operation that only looks, on what is remembered if that may be believed: for
    /// whoever asks the same again and again. Opening a file is not such a case.
    pub fn look<O: Op>(&self, op: &O, interrupt: &Interrupt) -> FsResult<O::Out> {
        self.ask_or(op, interrupt, |reads| self.env.recall.as_ref()?.believed(reads))
    }

    /// Runs an operation that only looks. It needs no lane and no commit.
    pub fn ask<O: Op>(&self, op: &O, interrupt: &Interrupt) -> FsResult<O::Out> {
        self.ask_or(op, interrupt, |_| None)
    }

    fn ask_or<O: Op>(
        &self,
        op: &O,
        interrupt: &Interrupt,
        known: impl Fn(&[Read]) -> Option<Vec<Found>>,
    ) -> FsResult<O::Out> {
        let mut batch = Batch::new(&self.env);
        loop {
            let mut view = View::new(&batch);
            let ran = op.run(&mut view);
            let learned = view.into_outcome().learned;
            let reads = match ran {
                Ok(out) => {
                    self.env.learn(learned);
                    return Ok(out);
                }
                Err(Stop::Fail(error)) => {
                    self.env.learn(learned);
                    return Err(error);
                }
                Err(Stop::More(reads)) => reads,
            };
            if let Some(found) = known(&reads) {
                batch.learn(reads, found);
                continue;
            }
            let moment = self.env.recall.as_ref().map_or(0, Recall::moment);
            let found = self.patiently(interrupt, || self.engine.read(&reads))?;
            if let Some(recall) = &self.env.recall {
                recall.learn(&reads, &found, moment);
            }
            batch.learn(reads, found);
            let doubts = batch.doubts();
            if !doubts.is_empty() {
                let found = self.patiently(interrupt, || self.engine.read(&doubts))?;
                if !batch.dispel(&found).is_empty() {
                    batch = Batch::new(&self.env);
                }
            }
        }
    }

    /// Asks the engine until it answers or patience ends. What is asked must be harmless if it is
    /// asked twice: a lost answer is no reason to give up.
    pub(crate) fn patiently<T>(
        &self,
        interrupt: &Interrupt,
        ask: impl Fn() -> Result<T, EngineError>,
    ) -> FsResult<T> {
        let until = wait::now() + self.options.patience;
        let mut pause = Duration::from_millis(10);
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) if passes(&error) && interrupt.is_set() => {
                    return Err(FsError::Interrupted);
                }
                Err(error) if passes(&error) && wait::now() < until => {
                    interrupt.sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(FsError::io(error)),
            }
        }
    }

    fn writable(&self) -> FsResult<()> {
        if self.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Bytes and inodes in use, as stored now. One trip.
    pub fn stored_usage(&self, interrupt: &Interrupt) -> FsResult<(i64, i64)> {
        let reads = [Counter::UsedSpace, Counter::TotalInodes]
            .map(|counter| Read::Get(Key::Counter(counter), Hold::None));
        let found = self.patiently(interrupt, || self.engine.read(&reads))?;
        let mut values = found.into_iter().map(|found| match found {
            Found::Row(Some(Row::Counter(_, value))) => value,
            _ => 0,
        });
        Ok((values.next().unwrap_or(0), values.next().unwrap_or(0)))
    }

    /// Whether nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// This client's own knowledge.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Session id, 0 if there is none.
    pub fn sid(&self) -> u64 {
        self.env.sid
    }

    /// What became of the session that was to be taken up, if one was.
    pub fn taken_up(&self) -> Option<&TakenUp> {
        self.taken_up.as_ref()
    }

    /// Scheme of the engine's URLs.
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// Makes everything committed so far survive a power cut, as far as the engine can.
    pub fn sync(&self) -> FsResult<()> {
        self.patiently(&Interrupt::never(), || self.engine.sync())
    }

    /// Registers an open handle, before the trip that opens the file.
    pub fn register_open(&self, ino: Ino) {
        self.env.opens.opened(ino);
    }

    /// Unregisters an open handle; whether it was this client's last of that file.
    pub fn unregister_open(&self, ino: Ino) -> bool {
        self.env.opens.closed(ino)
    }

    /// Waits until it is known what became of a file that this client was about to destroy when a
    /// handle of it was registered. Called before the trip that opens.
    ///
    /// # Errors
    /// `EINTR` if the wait was interrupted, `EIO` if the engine says nothing for too long.
    pub fn await_fate(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        self.env.opens.wait(ino, self.options.patience, interrupt)
    }

    /// Waits for locks to be released.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

/// Whether a failure may pass by itself.
fn passes(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Unavailable { .. } | EngineError::Indeterminate { .. } | EngineError::Conflict(_)
    )
}

/// Registers a new session with its writer records, and answers its id.
pub(crate) fn register(engine: &dyn Engine, options: &Options) -> Result<u64, EngineError> {
    let lanes = engine.limits().lanes.max(1) as u16;
    let mut tries = 0;
    loop {
        let mut txn = engine.begin(0)?;
        let counters = [Counter::NextSession, Counter::DirMoves];
        let mut found = txn
            .read(&counters.map(|counter| Read::Get(Key::Counter(counter), Hold::Lock)))?
            .into_iter()
            .map(|found| if let Found::Row(row) = found { row } else { None });
        let (before, moves) = (found.next().flatten(), found.next().flatten());
        let last = if let Some(Row::Counter(_, last)) = before { last } else { 0 };
        let sid = last as u64 + 1;
        let expire = options.clock.now().sec + options.session_lifetime();
        let session = Session { expire, info: Some(options.info.clone().into()) };
        let mut commit = Commit::default();
        commit.expects.push(match before {
            Some(row) => Expect::Row(row, Hold::Lock),
            None => Expect::Absent(Key::Counter(Counter::NextSession)),
        });
        commit.writes.push(Write::Put(Row::Counter(Counter::NextSession, last + 1)));
        // JuiceFS does not make it, and a record that is not there cannot be locked.
        if moves.is_none() {
            commit.writes.push(Write::Insert(Row::Counter(Counter::DirMoves, 0)));
        }
        commit.writes.push(Write::Put(Row::Session(sid, session)));
        commit.writes.extend((0..lanes).map(|lane| Write::Insert(Row::Writer(sid, lane, 0))));
        match txn.commit(&commit) {
            Ok(()) => return Ok(sid),
            // A lost answer costs a session id, and leaves a session that nobody refreshes.
            Err(EngineError::Conflict(_) | EngineError::Indeterminate { .. }) if tries < 50 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}
