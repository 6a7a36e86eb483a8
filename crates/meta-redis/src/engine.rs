//! The engine itself: lanes, transactions, preparation.
//!
//! A transaction holds nothing on the server. Its reads are plain reads; its commit compares what it was told to
//! expect. A lane keeps its connection, so that the thread that leads a batch writes and reads the socket itself.

use std::sync::Arc;

use parking_lot::Mutex;
use redis::Value;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{
        Commit, Cursor, Engine, EngineError, Found, Hold, Limits, List, Page, Read, Scan, Txn, Watch, Write,
    },
    schema::Key,
};

use crate::{
    commit::{Outcome, Plan as CommitPlan},
    config::Config,
    conn::{Conn, Failure, Pool},
    keys::Keys,
    pipeline::Pipeline,
    read::{MOST_CHUNKS, Plan},
    scan, script,
    watch::Listener,
};

/// Commits under way at once. Redis runs one script at a time; a second and third hide the network and our own work.
const LANES: usize = 3;

/// Operations in one commit: few enough for a script to end within about 2 ms.
const BATCH: usize = 200;

/// A volume's metadata in one Redis database.
///
/// [`Engine::sync`] does nothing: how much a power cut can take is decided by the server's `appendonly` and
/// `appendfsync`.
pub struct RedisEngine {
    pub(crate) pool: Arc<Pool>,
    pub(crate) keys: Keys,
    lanes: Vec<Mutex<Option<Conn>>>,
}

impl RedisEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        Self::with_config(Config::parse(url)?)
    }

    /// As [`Self::open`], for a configuration that the caller completed (a password from the environment).
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it cannot work, for instance a certificate that cannot be read.
    pub fn with_config(config: Config) -> Result<Self, EngineError> {
        let keys = Keys::new(&config.prefix, config.db);
        let pool = Arc::new(Pool::new(config)?);
        Ok(Self { pool, keys, lanes: (0..LANES).map(|_| Mutex::new(None)).collect() })
    }

    fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, EngineError> {
        let mut conn = None;
        let answers = self.pool.ask(&mut conn, pipeline);
        if let Some(conn) = conn {
            self.pool.give(conn);
        }
        answers
    }

    fn check_server(&self, info: &str) -> Result<(), EngineError> {
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let version = field("redis_version:").unwrap_or("0");
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
        if major < 4 {
            return Err(self.pool.refused(format!("it is Redis {version}; version 4 or newer is needed")));
        }
        if field("cluster_enabled:") == Some("1") {
            return Err(self.pool.refused("it is a Redis Cluster, which is not supported yet".into()));
        }
        if field("aof_enabled:") == Some("0") {
            tracing::warn!(
                server = &*self.pool.label,
                "appendonly is off: a crash of the server loses all changes since its last snapshot"
            );
        }
        if field("maxmemory_policy:").is_some_and(|policy| policy != "noeviction") {
            self.forbid_eviction();
        }
        Ok(())
    }

    fn forbid_eviction(&self) {
        let mut pipeline = Pipeline::default();
        pipeline.command("CONFIG").extend([&b"SET"[..], b"maxmemory-policy", b"noeviction"]);
        let set = self.ask(&pipeline).map(|mut answers| answers.pop());
        if !matches!(set, Ok(Some(Value::Okay))) {
            tracing::warn!(
                server = &*self.pool.label,
                "the server may evict metadata when its memory is full, and does not let us forbid it: \
                 set maxmemory-policy to noeviction"
            );
        }
    }
}

impl Engine for RedisEngine {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn limits(&self) -> Limits {
        Limits { lanes: LANES, batch: BATCH, compares: true, notifies: true }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        // By itself: a server drops who sends as much as the scripts before it knows them, without a word.
        let mut info = Pipeline::default();
        info.command("INFO");
        if let Some(Value::BulkString(info)) =
            self.ask(&info)?.pop().map(|info| self.pool.sound(info)).transpose()?
        {
            self.check_server(&String::from_utf8_lossy(&info))?;
        }
        let mut scripts = Pipeline::default();
        for script in script::ALL {
            let command = scripts.command("SCRIPT");
            command.push(b"LOAD");
            command.push(script.source.as_bytes());
        }
        self.ask(&scripts)?.into_iter().try_for_each(|answer| self.pool.sound(answer).map(drop))
    }

    fn begin(&self, lane: u16) -> Result<Box<dyn Txn + '_>, EngineError> {
        Ok(Box::new(RedisTxn { engine: self, lane: usize::from(lane), raw: FxHashMap::default() }))
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let plan = Plan::new(&self.keys, reads);
        plan.run(&self.pool, |pipeline| self.ask(pipeline)).map(|answers| answers.found)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let request = scan::Request::new(&self.keys, scan, from, limit)
            .ok_or_else(|| self.pool.refused("the cursor is not of this scan".into()))?;
        let answer = self.ask(request.pipeline())?.pop().unwrap_or(Value::Nil);
        request.page(&self.pool, &self.keys, self.pool.sound(answer)?)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(Listener::new(self.pool.clone(), &self.keys)?))
    }
}

struct RedisTxn<'e> {
    engine: &'e RedisEngine,
    lane: usize,
    /// Records as stored whose text others may have spelled differently, to be compared at the commit.
    raw: FxHashMap<Key, Vec<u8>>,
}

impl RedisTxn<'_> {
    /// The lane's connection for a while; a lane that there is none of gets a connection of its own.
    fn with_lane<T>(&self, work: impl FnOnce(&mut Option<Conn>) -> T) -> T {
        match self.engine.lanes.get(self.lane) {
            Some(lane) => work(&mut lane.lock()),
            None => work(&mut None),
        }
    }
}

impl Txn for RedisTxn<'_> {
    fn read(&mut self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let pool = &self.engine.pool;
        let plan = Plan::new(&self.engine.keys, reads);
        let answers = plan.run(pool, |pipeline| self.with_lane(|conn| pool.ask(conn, pipeline)))?;
        let held = |key: &Key| {
            reads.iter().any(|read| matches!(read, Read::Get(of, hold) if of == key && *hold > Hold::None))
        };
        self.raw.extend(answers.raw.into_iter().filter(|(key, _)| held(key)));
        Ok(answers.found)
    }

    fn commit(self: Box<Self>, commit: &Commit) -> Result<(), EngineError> {
        let pool = &self.engine.pool;
        let vast = |write: &Write| matches!(write, Write::Clear(List::Chunks(_, from, to)) if to.saturating_sub(*from) > MOST_CHUNKS);
        if commit.writes.iter().any(vast) {
            return Err(pool.refused("the file has too many chunks to remove them all at once".into()));
        }
        let plan = CommitPlan::new(&self.engine.keys, commit, &self.raw);
        let answer = self.with_lane(|held| {
            let mut conn = match held.take() {
                Some(conn) => conn,
                // An idle one may have gone stale, and then the outcome would be in doubt.
                None => pool.connect()?,
            };
            let answer = conn.exchange(plan.pipeline()).map_err(|failure| match failure {
                Failure::NotSent(reason) => pool.unavailable(reason),
                Failure::NoAnswer(reason) => {
                    EngineError::Indeterminate { engine: pool.label.to_string(), reason }
                }
            })?;
            *held = Some(conn);
            Ok(answer)
        })?;
        let answer = pool.sound(answer.into_iter().next().unwrap_or(Value::Nil))?;
        match plan.outcome(&answer) {
            Some(Outcome::Done) => Ok(()),
            Some(Outcome::Failed(keys)) => Err(EngineError::Conflict(keys)),
            None => Err(pool.odd("a commit")),
        }
    }
}
