//! The public interface of a volume's metadata: open it, run operations, close it.
//!
//! Every change goes through [`Meta::run`] and thereby through group commit. Everything that only
//! reads goes through [`Meta::read`]. Each operation documents its input and its result.

use std::{panic::resume_unwind, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use sluice_types::{FsError, FsResult, Ino, wait};

use crate::{
    batch::{Batcher, Interrupt},
    engine::{Engine, EngineError, Found, Read},
    env::Env,
    expiry::Expiry,
    grace::Grace,
    id_pool::IdPool,
    op::Op,
    options::{OpenError, Options},
    periodic_thread::PeriodicThread,
    record_cache::RecordCache,
    resume::{Start, TakenUp, retry},
    schema::{Counter, Key, Member, Row, SessionInfo},
    stats::MetaStats,
    view::{Batch, Stop, View},
    waiters::Waiters,
    want::Want,
};

/// An open volume.
pub struct Meta {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) env: Arc<Env>,
    batcher: Batcher,
    readers: Batcher,
    pub(crate) options: Options,
    pub(crate) inodes: IdPool,
    pub(crate) slices: IdPool,
    pub(crate) waiters: Waiters,
    pub(crate) grace: Mutex<Grace>,
    pub(crate) beater: Mutex<Option<PeriodicThread>>,
    pub(crate) expiry: Expiry,
    pub(crate) info: Mutex<SessionInfo>,
    /// Its membership in a cache group, and how often it was fenced when it joined.
    pub(crate) membership: Mutex<Option<(Member, i64)>>,
    read_only: bool,
    taken_up: Option<TakenUp>,
}

impl Meta {
    /// Opens a volume. Registers a session, or resumes the session of a process that died. A volume
    /// that is opened only for reading has none.
    pub fn open(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Self>, OpenError> {
        // A client that resumes a session also waits for the engine. A new mount fails at once.
        let timeout = if options.resume.is_some() { options.timeout } else { Duration::ZERO };
        let until = wait::now() + timeout;
        let format = retry(until, || Self::load_format(engine.as_ref()))?
            .ok_or(OpenError::NotFormatted(engine.name()))?;
        format.check()?;
        // For the log, if the caller's span asks for them.
        let span = tracing::Span::current();
        span.record("volume", &format.name);
        let read_only = options.read_only;
        let effect_log = options.effect_log.clone().filter(|_| !read_only);
        let mut start = Start::default();
        if !read_only {
            retry(until, || engine.prepare())?;
            start = Start::of(engine.as_ref(), &options, format.change_log)?;
        }
        let sid = start.sid;
        span.record("session", sid);
        if let Some(effect_log) = &effect_log {
            effect_log.session(sid, engine.limits().lanes.max(1) as u16, start.fences);
        }
        let mut env = Env::new(sid, options.clock.clone(), format);
        env.set_fences(start.fences);
        env.keeps_log = engine.change_log().is_some();
        env.effect_log = effect_log;
        let records = options.client_cache.map_or(0, |cache| 2 * cache.size);
        env.record_cache = (options.record_cache || records > 0).then(|| RecordCache::new(records));
        env.starts_from_cache = options.record_cache;
        let env = Arc::new(env);
        let batcher = Batcher::new(engine.clone(), env.clone(), sid, options.timeout);
        batcher.go_on(&start.numbers);
        let readers = Batcher::of_reads(&batcher);
        let waiters = Waiters::new(engine.clone(), batcher.counts().clone());
        let grace = Mutex::new(Grace::new(options.clock.now().sec));
        let info = Mutex::new(options.info.clone());
        let meta = Self {
            engine,
            env,
            batcher,
            readers,
            options,
            inodes: IdPool::new(Counter::NextInode, 1024),
            slices: IdPool::new(Counter::NextChunk, 1 << 14),
            waiters,
            grace,
            beater: Mutex::new(None),
            expiry: Expiry::default(),
            info,
            membership: Mutex::default(),
            read_only,
            taken_up: start.taken_up,
        };
        retry(until, || meta.reload_usage())?;
        Ok(Arc::new(meta))
    }

    /// Runs an operation that may change something.
    pub fn run<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        self.writable()?;
        processed_late(self.batcher.submit(op, interrupt))
    }

    /// Runs two operations that share a conflict key, in one commit if the engine takes both. The
    /// second follows the first, and runs only if the first succeeds.
    pub fn run_then<A: Op, B: Op>(
        &self,
        first: A,
        second: B,
        interrupt: &Interrupt,
    ) -> FsResult<(A::Out, FsResult<B::Out>)> {
        self.writable()?;
        processed_late(self.batcher.submit_then(first, second, interrupt))
    }

    /// Runs many operations at once, on as many threads as the engine has lanes if they fill that
    /// many batches. Answers in their order.
    pub fn run_all<O: Op>(&self, mut ops: Vec<O>, interrupt: &Interrupt) -> Vec<FsResult<O::Out>> {
        if let Err(error) = self.writable() {
            return ops.iter().map(|_| Err(error.clone())).collect();
        }
        let limits = self.engine.limits();
        let threads = ops.len().div_ceil(limits.batch.max(1)).clamp(1, limits.lanes.max(1));
        if threads == 1 {
            return processed_late(self.batcher.submit_all(ops, interrupt));
        }
        let share = ops.len().div_ceil(threads);
        let mut rest = Vec::new();
        while ops.len() > share {
            rest.push(ops.split_off(ops.len() - share));
        }
        let run = || {
            thread::scope(|scope| {
                let others = rest.into_iter().rev();
                let others: Vec<_> =
                    others.map(|part| scope.spawn(|| self.batcher.submit_all(part, interrupt))).collect();
                let mut answers = self.batcher.submit_all(ops, interrupt);
                for other in others {
                    answers.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
                }
                answers
            })
        };
        processed_late(wait::apart(run))
    }

    /// Runs an operation that only reads, on cached records if that is allowed: for callers that
    /// repeat the same reads. Opening a file must not use it.
    pub fn read_cached<O: Op>(&self, op: &O, interrupt: &Interrupt) -> FsResult<O::Out> {
        processed_late(self.read_with(op, interrupt, |wants| self.env.record_cache.as_ref()?.believed(wants)))
    }

    /// Runs an operation that only reads. It needs no lane and no commit.
    pub fn read<O: Op>(&self, op: &O, interrupt: &Interrupt) -> FsResult<O::Out> {
        processed_late(self.read_with(op, interrupt, |_| None))
    }

    /// As [`Self::read`]. Many threads that call this at the same time share round trips.
    pub fn read_together<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        processed_late(self.readers.submit(op, interrupt))
    }

    /// Whether reads may be answered from cached records ([`Self::read_cached`]).
    pub fn has_client_cache(&self) -> bool {
        self.options.client_cache.is_some()
    }

    fn read_with<O: Op>(
        &self,
        op: &O,
        interrupt: &Interrupt,
        known: impl Fn(&[Want]) -> Option<Vec<Found>>,
    ) -> FsResult<O::Out> {
        let mut asked = Duration::ZERO;
        let done = self.read_timed(op, interrupt, known, &mut asked);
        self.stats().operation(O::NAME, asked);
        done
    }

    /// Adds the time that the engine took to `asked`.
    fn read_timed<O: Op>(
        &self,
        op: &O,
        interrupt: &Interrupt,
        known: impl Fn(&[Want]) -> Option<Vec<Found>>,
        asked: &mut Duration,
    ) -> FsResult<O::Out> {
        let mut batch = Batch::new(&self.env);
        loop {
            let mut view = View::new(&batch);
            let ran = op.run(&mut view);
            let learned = view.into_outcome().learned;
            let wants = match ran {
                Ok(out) => {
                    self.env.learn(learned);
                    return Ok(out);
                }
                Err(Stop::Fail(error)) => {
                    self.env.learn(learned);
                    return Err(error);
                }
                Err(Stop::More(wants)) => wants,
            };
            if let Some(found) = known(&wants) {
                batch.learn(Want::split(wants), found);
                continue;
            }
            let (reads, holds) = Want::split(wants);
            let moment = self.env.record_cache.as_ref().map_or(0, RecordCache::moment);
            let (found, took) = self.retry_timed(interrupt, || self.engine.read(&reads))?;
            self.stats().reads.observe(took);
            *asked += took;
            if let Some(record_cache) = &self.env.record_cache {
                record_cache.learn(&reads, &found, moment);
            }
            batch.learn((reads, holds), found);
            let dangling = batch.dangling();
            if !dangling.is_empty() {
                let found = self.retry(interrupt, || self.engine.read(&dangling))?;
                if !batch.recheck_dangling(&found).is_empty() {
                    batch = Batch::new(&self.env);
                }
            }
        }
    }

    /// Asks the engine until it answers or the timeout is over. The request must be harmless if it
    /// is repeated, because it is repeated when an answer is lost.
    pub(crate) fn retry<T>(
        &self,
        interrupt: &Interrupt,
        ask: impl Fn() -> Result<T, EngineError>,
    ) -> FsResult<T> {
        self.retry_timed(interrupt, ask).map(|(answer, _)| answer)
    }

    /// The same. Also returns the time that it took.
    fn retry_timed<T>(
        &self,
        interrupt: &Interrupt,
        ask: impl Fn() -> Result<T, EngineError>,
    ) -> FsResult<(T, Duration)> {
        let begun = wait::now();
        let until = begun + self.options.timeout;
        let mut pause = Duration::from_millis(10);
        loop {
            match ask() {
                Ok(answer) => return Ok((answer, wait::now().saturating_duration_since(begun))),
                Err(error) if passes(&error) && interrupt.is_set() => {
                    return Err(FsError::Interrupted);
                }
                Err(error) if passes(&error) && wait::now() < until => {
                    self.stats().retries.read.add(1);
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
        let reads =
            [Counter::UsedSpace, Counter::TotalInodes].map(|counter| Read::Get(Key::Counter(counter)));
        let found = self.retry(interrupt, || self.engine.read(&reads))?;
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

    /// What this client knows.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Session id, 0 if there is none.
    pub fn sid(&self) -> u64 {
        self.env.sid
    }

    /// Changes what other clients see of this one, from its next heartbeat on.
    pub fn change_info(&self, change: impl FnOnce(&mut SessionInfo)) {
        change(&mut self.info.lock());
    }

    /// What happened to the session that was to be resumed, if there was one.
    pub fn taken_up(&self) -> Option<&TakenUp> {
        self.taken_up.as_ref()
    }

    /// Scheme of the engine's URLs.
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// Whether a listing returns names in the order of their bytes, so each once.
    pub fn sorts_names(&self) -> bool {
        self.engine.sorts_names()
    }

    /// Makes everything committed so far survive a power cut, as far as the engine can.
    pub fn sync(&self) -> FsResult<()> {
        self.retry(&Interrupt::never(), || self.engine.sync())
    }

    /// Registers an open handle, before the trip that opens the file.
    pub fn register_open(&self, ino: Ino) {
        self.env.opens.opened(ino);
    }

    /// Unregisters an open handle. Returns whether it was this client's last of that file.
    pub fn unregister_open(&self, ino: Ino) -> bool {
        self.env.opens.closed(ino)
    }

    /// Waits for the outcome, if this client was about to delete a file when a handle of it was
    /// registered. Call it before the trip that opens.
    ///
    /// # Errors
    /// `EINTR` if the wait was interrupted, `EIO` if the engine does not answer for too long.
    pub fn await_removal(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        self.env.opens.wait(ino, self.options.timeout, interrupt)
    }

    /// How many files this client deleted so far. Take it before the trip that reads what is to be
    /// opened, for [`Self::deleted_since`].
    pub fn deletions(&self) -> u64 {
        self.env.opens.deletions()
    }

    /// Whether this client deleted a file, or may have, after the number of [`Self::deletions`].
    pub fn deleted_since(&self, ino: Ino, deletions: u64) -> bool {
        self.env.opens.deleted_since(ino, deletions)
    }

    /// The counters of this client's operations.
    pub fn stats(&self) -> &MetaStats {
        self.batcher.counts()
    }

    /// Operations that wait for locks.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

/// In a simulation, other answers may be processed before this one.
pub(crate) fn processed_late<T>(answer: T) -> T {
    wait::yield_to_scheduler();
    answer
}

/// Whether a failure may be temporary.
fn passes(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Unavailable { .. } | EngineError::Indeterminate { .. } | EngineError::Conflict(_)
    )
}
