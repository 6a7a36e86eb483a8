//! The engine: lanes, commits, preparation.
//!
//! Nothing is held on the server before the commit, not even a connection. Reads are plain reads,
//! and the commit compares the expected records. The thread that leads a batch writes and reads the
//! socket itself.

use std::sync::{Arc, OnceLock};

use redis::Value;
use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, List, Notices, Page, Read, Scan,
        Watch, Write,
    },
    schema::{Counter, Key, Notice, Row},
};

use crate::{
    answer::Reader,
    commit::Plan as CommitPlan,
    config::Config,
    handshake::ServerInfo,
    keys::Keys,
    load, mixed,
    pipeline::Pipeline,
    pool::Pool,
    read::{MAX_CHUNKS, Plan},
    scan, script,
    tracking::OwnChanges,
    vacant,
    watch::{self, Listener},
};

/// Commits under way at once. Redis runs one script at a time; a second and third hide the network
/// and our own work.
const LANES: usize = 3;

/// Operations in one commit: few enough for a script to end within about 2 ms.
const BATCH: usize = 200;

/// A volume's metadata in one Redis database, or in one slot of a Redis Cluster.
///
/// [`Engine::sync`] does nothing: how much a power cut can take is decided by the server's
/// `appendonly` and `appendfsync`.
pub struct RedisEngine {
    pub(crate) pool: Arc<Pool>,
    /// Set once it is known whether the servers are a cluster.
    keys: OnceLock<Keys>,
    lanes: usize,
    own: Arc<OwnChanges>,
}

impl RedisEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        Self::with_config(Config::parse(url)?)
    }

    /// As [`Self::open`], for a configuration that the caller completed (a password from the
    /// environment).
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it cannot work, for instance a certificate that cannot be read.
    pub fn with_config(config: Config) -> Result<Self, EngineError> {
        let lanes = LANES.min(config.limits.max_open);
        Ok(Self { pool: Arc::new(Pool::new(config)?), keys: OnceLock::new(), lanes, own: Arc::default() })
    }

    /// What keys are called.
    fn keys(&self) -> Result<&Keys, EngineError> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let prefix = if self.pool.is_cluster()? { self.pool.prefix() } else { String::new() };
        Ok(self.keys.get_or_init(|| Keys::new(prefix.as_bytes(), self.pool.config().db)))
    }

    pub(crate) fn reader(&self) -> Result<Reader<'_>, EngineError> {
        Ok(Reader { keys: self.keys()?, errors: self.pool.errors() })
    }

    fn check_server(&self, about: &ServerInfo) -> Result<(), EngineError> {
        let version = about.field("redis_version").unwrap_or("0");
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
        if major < 4 {
            return Err(self
                .pool
                .errors()
                .refused(format!("it is Redis {version}; version 4 or newer is needed")));
        }
        let server = &*self.pool.errors().label.0;
        if about.is_replica() {
            let primary = about.field("master_host").unwrap_or_default();
            tracing::warn!(
                server,
                primary,
                "the server is a read-only replica: nothing can be changed through it, and what others change \
                 comes late; the URL should name the primary, or the sentinels that know it"
            );
        }
        if about.field("aof_enabled") == Some("0") {
            tracing::warn!(
                server,
                "appendonly is off: a crash of the server loses all changes since its last snapshot"
            );
        }
        if about.field("maxmemory_policy").is_some_and(|policy| policy != "noeviction") {
            self.forbid_eviction();
        }
        Ok(())
    }

    /// Checks that the user may publish on the channel. Otherwise commits would not be announced,
    /// without an error.
    fn check_channel(&self) -> Result<(), EngineError> {
        let channel = watch::channel(self.keys()?);
        let mut notify = Pipeline::default();
        notify.command("PUBLISH").extend([&channel[..], &Notice::anonymous(Vec::new()).encode()]);
        let answer = self.pool.ask(&notify)?.pop().unwrap_or(Value::Nil);
        if matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM") {
            let channel = String::from_utf8_lossy(&channel);
            let user = self.pool.config().user.as_deref().unwrap_or("default");
            return Err(self.pool.errors().refused(format!(
                "clients tell each other what they change, and the user may not PUBLISH on their channel; allow it: \
                 ACL SETUSER {user} &{channel} +publish +subscribe"
            )));
        }
        self.pool.errors().sound(answer).map(drop)
    }

    /// Sends the requests, and fails with the first error in the answers.
    fn all_sound(&self, pipeline: &Pipeline) -> Result<(), EngineError> {
        let answers = self.pool.ask(pipeline)?;
        answers.into_iter().try_for_each(|answer| self.pool.errors().sound(answer).map(drop))
    }

    fn forbid_eviction(&self) {
        let mut pipeline = Pipeline::default();
        pipeline.command("CONFIG").extend([&b"SET"[..], b"maxmemory-policy", b"noeviction"]);
        let set = self.pool.ask(&pipeline).map(|mut answers| answers.pop());
        if !matches!(set, Ok(Some(Value::Okay))) {
            tracing::warn!(
                server = &*self.pool.errors().label.0,
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
        Limits { lanes: self.lanes, batch: BATCH, notices: Notices::Push }
    }

    fn sorts_names(&self) -> bool {
        false
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.keys()?;
        // Alone in its request: a server silently closes a connection that sends as much as the
        // scripts before it has logged in.
        let mut info = Pipeline::default();
        info.command("INFO");
        let answer = self.pool.ask(&info)?.pop().map(|info| self.pool.errors().sound(info)).transpose()?;
        self.check_server(&ServerInfo::read(answer))?;
        self.check_channel()?;
        if self.pool.config().wait_replicas > 0 {
            let mut wait = Pipeline::default();
            self.pool.wait(&mut wait);
            self.pool.replicated(self.pool.ask(&wait)?)?;
        }
        let mut scripts = Pipeline::default();
        for script in script::ALL {
            let command = scripts.command("SCRIPT");
            command.push(b"LOAD");
            command.push(script.source.as_bytes());
        }
        self.all_sound(&scripts)
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        Plan::new(self.reader()?, reads).run(&self.pool)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        let pool = &self.pool;
        let vast = |write: &Write| matches!(write, Write::Clear(List::Chunks(_, from, to)) if to.saturating_sub(*from) > MAX_CHUNKS);
        if commit.writes.iter().any(vast) {
            return Err(pool.errors().refused("the file has too many chunks to remove them all at once"));
        }
        let (plan, pipeline) = CommitPlan::new(self.keys()?, commit);
        self.own.note(commit);
        let answer = pool.errors().sound(pool.commit(pipeline)?)?;
        let failed = plan.failed(answer).ok_or_else(|| pool.errors().unexpected("a commit"))?;
        if failed.is_empty() { Ok(()) } else { Err(EngineError::Conflict(failed)) }
    }

    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        load::load(&self.pool, self.keys()?, rows)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let keys = self.keys()?;
        let words = mixed::words(scan);
        if !words.is_empty() {
            return mixed::Pass { pool: &self.pool, reader: self.reader()?, words, limit }.page(from);
        }
        // Cursors are valid for one server process only. For another one the scan starts again.
        let refused = || self.pool.errors().refused("the cursor is not of this scan");
        let request = |process| scan::Request::new(keys, scan, from, limit, process).ok_or_else(refused);
        request(0)?;
        let pipeline = |process| {
            std::borrow::Cow::Owned(request(process).map(|request| request.pipeline).unwrap_or_default())
        };
        let (answers, process) = self.pool.ask_by(pipeline)?;
        request(process)?.page(&self.pool, self.reader()?, answers)
    }

    fn is_mixed(&self) -> bool {
        true
    }

    fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        mixed::divide(cursor)
    }

    /// A commit is visible before the replicas have it.
    fn harden(&self) -> Result<(), EngineError> {
        self.pool.harden(&self.keys()?.cells(&Key::Counter(Counter::DirMoves))[0].key)
    }

    fn check_vacant(&self) -> Result<(), EngineError> {
        vacant::check(&self.pool, self.keys()?)
    }

    /// A database without a prefix contains nothing but the volume, as the format requires.
    fn remove_volume(&self) -> Result<(), EngineError> {
        let keys = self.keys()?;
        if keys.prefix.is_empty() {
            let mut flush = Pipeline::default();
            flush.command("FLUSHDB").push(b"ASYNC");
            return self.all_sound(&flush);
        }
        scan::remove_all(&self.pool, self.reader()?)
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(Listener::new(self.pool.clone(), self.keys()?, self.own.clone())?))
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }
}
