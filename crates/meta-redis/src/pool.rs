//! The connections of one client.
//!
//! What must stay true: there are never more than the URL allows, nobody waits for one for ever,
//! and one that failed, that the server has closed, or that leads to a server which takes no
//! writes, is not handed out.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Instant,
};

use parking_lot::{Condvar, Mutex};
use redis::Value;
use sluice_meta::engine::EngineError;

use crate::{
    config::{Address, Config},
    conn::{Conn, Failure},
    error::{Redirect, is_unfit, named},
    locate::Finder,
    pipeline::Pipeline,
    tls::Encryption,
};

/// How often in a row nodes of a cluster may send us on.
const REDIRECTS: usize = 5;

/// Connections, idle or lent.
pub(crate) struct Pool {
    pub(crate) config: Config,
    pub(crate) label: Arc<str>,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) finder: Finder,
    /// Whether the servers are a cluster, once that is known.
    pub(crate) clustered: OnceLock<bool>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// The one used last at the end.
    idle: Vec<Conn>,
    lent: usize,
}

/// A connection that goes back to the pool.
struct Lent<'p> {
    pool: &'p Pool,
    conn: Option<Conn>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Result<Self, EngineError> {
        let label: Arc<str> = config.label().into();
        let refused = |reason| EngineError::Refused { engine: label.to_string(), reason };
        let encryption = config.tls.as_ref().map(Encryption::new).transpose().map_err(refused)?;
        let (finder, clustered) = Finder::new(&config.servers);
        let clustered = clustered.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Self {
            config,
            label,
            encryption,
            finder,
            clustered,
            state: Mutex::default(),
            returned: Condvar::new(),
        })
    }

    /// Whether the servers are a cluster; asks if nobody did before.
    pub(crate) fn is_cluster(&self) -> Result<bool, EngineError> {
        if self.clustered.get().is_none() {
            self.take()?;
        }
        self.clustered.get().copied().ok_or_else(|| self.odd("INFO"))
    }

    /// Asks what may be asked twice: a connection that went stale is replaced.
    pub(crate) fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, EngineError> {
        let (answers, from) = self.ask_by(|_| Cow::Borrowed(pipeline))?;
        self.ask_again(pipeline, answers, &from)
    }

    /// Asks what depends on which process answers it. Returns where the answers are from, too.
    pub(crate) fn ask_by<'p>(
        &self,
        pipeline: impl Fn(u64) -> Cow<'p, Pipeline>,
    ) -> Result<(Vec<Value>, Address), EngineError> {
        let mut redirects = 0;
        loop {
            let mut lent = self.take()?;
            let Some(conn) = &mut lent.conn else { continue };
            let (used, pipeline) = (conn.used, pipeline(conn.process));
            match conn.exchange(&pipeline) {
                Ok(answers) if self.is_elsewhere(conn, &answers) && redirects < REDIRECTS => redirects += 1,
                Ok(answers) => return Ok((answers, conn.address.clone())),
                Err(failure) => {
                    self.forget();
                    if let (false, Failure::NotSent(reason) | Failure::NoAnswer(reason)) = (used, failure) {
                        return Err(self.unavailable(reason));
                    }
                }
            }
        }
    }

    /// Commits, by one command, what must not be done twice.
    pub(crate) fn commit(&self, mut pipeline: Pipeline) -> Result<Value, EngineError> {
        let replicas = self.config.wait_replicas;
        if replicas > 0 {
            self.wait(&mut pipeline);
        }
        let mut redirects = 0;
        loop {
            let mut lent = self.take()?;
            let Some(conn) = &mut lent.conn else { continue };
            let used = conn.used;
            match conn.exchange(&pipeline) {
                // Who sends us elsewhere has done nothing.
                Ok(answers) if self.is_elsewhere(conn, &answers) && redirects < REDIRECTS => redirects += 1,
                Ok(answers) => {
                    let mut answers = answers.into_iter();
                    let answer = answers.next().unwrap_or(Value::Nil);
                    let done = !matches!(answer, Value::ServerError(_));
                    match answers.next() {
                        Some(Value::Int(have)) if have >= i64::from(replicas) => {}
                        // Also of a conflict: that is what a commit met which the replicas may not
                        // have.
                        Some(_) if done => {
                            self.forget();
                            let reason = format!("it has not reached {replicas} replicas (wait-replicas)");
                            return Err(self.indeterminate(reason));
                        }
                        _ => {}
                    }
                    return Ok(answer);
                }
                Err(Failure::NotSent(_)) if used => self.forget(),
                Err(Failure::NotSent(reason)) => {
                    self.forget();
                    return Err(self.unavailable(reason));
                }
                Err(Failure::NoAnswer(reason)) => {
                    self.forget();
                    return Err(self.indeterminate(reason));
                }
            }
        }
    }

    /// Adds the command that answers how many replicas have all that was done before it, as soon as
    /// they are as many as there should be.
    pub(crate) fn wait(&self, pipeline: &mut Pipeline) {
        // It has to answer before we give up.
        let patience = u64::try_from(self.config.read_timeout.as_millis() * 3 / 4).unwrap_or(u64::MAX);
        let wait = pipeline.command("WAIT");
        wait.push_number(u64::from(self.config.wait_replicas));
        wait.push_number(patience.max(1));
    }

    /// Waits until the replicas that commits wait for have all that was committed before, which
    /// takes a change of its own: from Redis 7.2 on a connection waits only for what it changed
    /// itself. `key` is of a number.
    pub(crate) fn harden(&self, key: &[u8]) -> Result<(), EngineError> {
        if self.config.wait_replicas == 0 {
            return Ok(());
        }
        let mut pipeline = Pipeline::default();
        pipeline.command("INCRBY").extend([key, b"0"]);
        self.wait(&mut pipeline);
        self.replicated(self.ask_by(|_| Cow::Borrowed(&pipeline))?.0)
    }

    /// Whether the last of the answers, to [`Self::wait`], says that there are enough replicas.
    pub(crate) fn replicated(&self, answers: Vec<Value>) -> Result<(), EngineError> {
        let mut have = Value::Nil;
        for answer in answers {
            have = self.sound(answer)?;
        }
        match have {
            Value::Int(have) if have >= i64::from(self.config.wait_replicas) => Ok(()),
            _ => Err(self.unavailable("fewer replicas are connected than wait-replicas wants".into())),
        }
    }

    /// Whether the volume is on another node now, which is then the one to ask. A connection to a
    /// server that is not, or no longer, the one to ask is not used again.
    fn is_elsewhere(&self, conn: &mut Conn, answers: &[Value]) -> bool {
        if !answers.iter().any(is_unfit) {
            return false;
        }
        conn.sound = false;
        self.forget();
        let moved = answers.iter().find_map(|answer| match Redirect::of(answer) {
            Some(Redirect::Moved(host, port)) => Some(named(host, port, &conn.address)),
            _ => None,
        });
        let elsewhere = moved.is_some();
        if let Some(address) = moved {
            self.finder.found(address);
        }
        elsewhere
    }

    /// While a slot moves, asks the node that it moves to for the keys that are there already. Only
    /// commands on one key may be asked so: of several, or in a script, those that did not move yet
    /// would look as if they were absent.
    fn ask_again(
        &self,
        pipeline: &Pipeline,
        mut answers: Vec<Value>,
        from: &Address,
    ) -> Result<Vec<Value>, EngineError> {
        let mut asked: Vec<usize> = Vec::new();
        let mut to = None;
        for (at, answer) in answers.iter().enumerate() {
            if let Some(Redirect::Ask(host, port)) = Redirect::of(answer)
                && pipeline.is_of_one_key(at)
            {
                asked.push(at);
                to = Some(named(host, port, from));
            }
        }
        let Some(to) = to else { return Ok(answers) };
        let mut conn = self.connect_to(&to)?;
        match conn.exchange(&pipeline.asking(&asked)) {
            Ok(again) => {
                // Each is preceded by the answer to ASKING.
                for (at, answer) in asked.iter().zip(again.into_iter().skip(1).step_by(2)) {
                    answers[*at] = answer;
                }
                Ok(answers)
            }
            Err(Failure::NotSent(reason) | Failure::NoAnswer(reason)) => Err(self.unavailable(reason)),
        }
    }

    fn take(&self) -> Result<Lent<'_>, EngineError> {
        let until = Instant::now() + self.config.read_timeout;
        let mut state = self.state.lock();
        loop {
            let (dropped, found) = self.choose(&mut state);
            if found.is_some() || state.lent < self.config.max_open {
                state.lent += 1;
                drop(state);
                drop(dropped);
                let mut lent = Lent { pool: self, conn: found };
                if lent.conn.is_none() {
                    lent.conn = Some(self.connect()?);
                }
                return Ok(lent);
            }
            if self.returned.wait_until(&mut state, until).timed_out() {
                return Err(self.unavailable(format!(
                    "all {} connections are busy; raise max_open_conns",
                    self.config.max_open
                )));
            }
        }
    }

    /// The idle connection used last, if it is still of use, and those that are not any more.
    fn choose(&self, state: &mut State) -> (Vec<Conn>, Option<Conn>) {
        let now = Instant::now();
        let aged = |since: Instant, limit: Option<_>| limit.is_some_and(|limit| now - since > limit);
        let old = |conn: &mut Conn| {
            aged(conn.idle, self.config.max_idle_time) || aged(conn.born, self.config.max_life_time)
        };
        let mut dropped: Vec<Conn> = state.idle.extract_if(.., old).collect();
        while let Some(conn) = state.idle.pop() {
            if !conn.wire.is_stale() {
                return (dropped, Some(conn));
            }
            dropped.push(conn);
        }
        (dropped, None)
    }

    /// Whatever ended one connection ended the other idle ones too, and it may be another server's
    /// turn.
    pub(crate) fn forget(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
        self.finder.forget();
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.lent -= 1;
        let mut closing = None;
        if let Some(mut conn) = self.conn.take() {
            if conn.sound && state.idle.len() < self.pool.config.max_idle {
                conn.idle = Instant::now();
                state.idle.push(conn);
            } else {
                closing = Some(conn);
            }
        }
        drop(state);
        self.pool.returned.notify_one();
        drop(closing);
    }
}
