//! The connections of one client, and what is said on them.
//!
//! What must stay true: a commit is sent again only if no server can have seen any of it, and a
//! connection that failed, or that leads to a server which takes no writes, is not used again.

use std::borrow::Cow;

use redis::Value;
use sluice_meta::engine::EngineError;
use sluice_net::{Address, Pool as Connections};

use crate::{
    config::Config,
    conn::{Conn, Failure},
    dial::Dialer,
    error::{Errors, Redirect, is_unfit, named},
    handshake::Connector,
    locate::Finder,
    pipeline::Pipeline,
};

/// How often in a row nodes of a cluster may send us on.
const REDIRECTS: usize = 5;

/// Connections, idle or lent.
pub(crate) struct Pool {
    connector: Connector,
    connections: Connections<Conn>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Result<Self, EngineError> {
        let (finder, clustered) = Finder::new(&config.servers);
        let connections = Connections::new(config.limits.clone(), config.read_timeout);
        let dialer = Dialer::new(config, clustered)?;
        Ok(Self { connector: Connector { dialer, finder }, connections })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.connector.dialer.config
    }

    pub(crate) fn errors(&self) -> &Errors {
        &self.connector.dialer.errors
    }

    /// What all keys of a volume in a cluster begin with.
    pub(crate) fn prefix(&self) -> String {
        self.connector.dialer.prefix()
    }

    /// A new connection, not one of the pool's.
    pub(crate) fn connect(&self) -> Result<Conn, EngineError> {
        self.connector.connect()
    }

    /// Whether the servers are a cluster; asks if nobody did before.
    pub(crate) fn is_cluster(&self) -> Result<bool, EngineError> {
        let clustered = &self.connector.dialer.clustered;
        if clustered.get().is_none() {
            self.with(|_| ())?;
        }
        clustered.get().copied().ok_or_else(|| self.errors().unexpected("INFO"))
    }

    /// Calls `work` with a connection.
    fn with<R>(&self, work: impl FnOnce(&mut Conn) -> R) -> Result<R, EngineError> {
        self.connections.with(|| self.connect(), |reason| self.errors().unavailable(reason), work)
    }

    /// One exchange, on whichever connection there is.
    fn exchange<'p>(&self, pipeline: impl Fn(u64) -> Cow<'p, Pipeline>) -> Result<Exchange, EngineError> {
        self.with(|conn| {
            let used = conn.used;
            match conn.exchange(&pipeline(conn.process)) {
                Ok(answers) => {
                    let elsewhere = self.is_elsewhere(conn, &answers);
                    Exchange::Done { answers, elsewhere, from: conn.address.clone() }
                }
                Err(failure) => {
                    self.forget();
                    Exchange::Failed { failure, used }
                }
            }
        })
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
            match self.exchange(&pipeline)? {
                Exchange::Done { elsewhere: true, .. } if redirects < REDIRECTS => redirects += 1,
                Exchange::Done { answers, from, .. } => return Ok((answers, from)),
                Exchange::Failed { used: true, .. } => {}
                Exchange::Failed {
                    failure: Failure::NotSent(reason) | Failure::NoAnswer(reason), ..
                } => {
                    return Err(self.errors().unavailable(reason));
                }
            }
        }
    }

    /// Commits, by one command, what must not be done twice.
    pub(crate) fn commit(&self, mut pipeline: Pipeline) -> Result<Value, EngineError> {
        if self.config().wait_replicas > 0 {
            self.wait(&mut pipeline);
        }
        let mut redirects = 0;
        loop {
            match self.exchange(|_| Cow::Borrowed(&pipeline))? {
                // Who sends us elsewhere has done nothing.
                Exchange::Done { elsewhere: true, .. } if redirects < REDIRECTS => redirects += 1,
                Exchange::Done { answers, .. } => return self.outcome(answers),
                Exchange::Failed { failure: Failure::NotSent(_), used: true } => {}
                Exchange::Failed { failure: Failure::NotSent(reason), .. } => {
                    return Err(self.errors().unavailable(reason));
                }
                Exchange::Failed { failure: Failure::NoAnswer(reason), .. } => {
                    return Err(self.errors().indeterminate(reason));
                }
            }
        }
    }

    /// The answer to a commit, unless too few replicas have it.
    fn outcome(&self, answers: Vec<Value>) -> Result<Value, EngineError> {
        let replicas = self.config().wait_replicas;
        let mut answers = answers.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil);
        let done = !matches!(answer, Value::ServerError(_));
        match answers.next() {
            Some(Value::Int(have)) if have >= i64::from(replicas) => {}
            // Also of a conflict: that is what a commit met which the replicas may not have.
            Some(_) if done => {
                self.forget();
                let reason = format!("it has not reached {replicas} replicas (wait-replicas)");
                return Err(self.errors().indeterminate(reason));
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Adds the command that answers how many replicas have all that was done before it, as soon as
    /// they are as many as there should be.
    pub(crate) fn wait(&self, pipeline: &mut Pipeline) {
        // It has to answer before we give up.
        let patience = u64::try_from(self.config().read_timeout.as_millis() * 3 / 4).unwrap_or(u64::MAX);
        let wait = pipeline.command("WAIT");
        wait.push_number(u64::from(self.config().wait_replicas));
        wait.push_number(patience.max(1));
    }

    /// Waits until the replicas that commits wait for have all that was committed before, which
    /// takes a change of its own: from Redis 7.2 on a connection waits only for what it changed
    /// itself. `key` is of a number.
    pub(crate) fn harden(&self, key: &[u8]) -> Result<(), EngineError> {
        if self.config().wait_replicas == 0 {
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
            have = self.errors().sound(answer)?;
        }
        match have {
            Value::Int(have) if have >= i64::from(self.config().wait_replicas) => Ok(()),
            _ => {
                Err(self.errors().unavailable("fewer replicas are connected than wait-replicas wants".into()))
            }
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
            self.connector.finder.found(address);
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
        let mut conn = self.connector.connect_to(&to)?;
        match conn.exchange(&pipeline.asking(&asked)) {
            Ok(again) => {
                // Each is preceded by the answer to ASKING.
                for (at, answer) in asked.iter().zip(again.into_iter().skip(1).step_by(2)) {
                    answers[*at] = answer;
                }
                Ok(answers)
            }
            Err(Failure::NotSent(reason) | Failure::NoAnswer(reason)) => {
                Err(self.errors().unavailable(reason))
            }
        }
    }

    /// Whatever ended one connection ended the other idle ones too, and it may be another server's
    /// turn.
    fn forget(&self) {
        self.connections.forget();
        self.connector.finder.forget();
    }
}

/// What came of one exchange.
enum Exchange {
    /// The answers, whether the volume is on another node now, and where they are from.
    Done { answers: Vec<Value>, elsewhere: bool, from: Address },
    /// Why there are none, and whether the connection had served before.
    Failed { failure: Failure, used: bool },
}
