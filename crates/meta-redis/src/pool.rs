//! The connections of one client, and the requests on them.
//!
//! What must stay true: a commit is sent again only if no server can have received any of it. A
//! connection is not used again if it failed, or if its server does not accept writes.

use std::borrow::Cow;

use redis::Value;
use sluice_meta::engine::EngineError;
use sluice_net::{Address, Pool as Connections};

use crate::{
    config::Config,
    conn::{Conn, Failure},
    dial::Dialer,
    error::{Errors, Redirect, is_wrong_server},
    handshake::Connector,
    locate::Finder,
    pipeline::Pipeline,
};

/// Most redirections in a row.
const REDIRECTS: usize = 5;

/// The pool of connections.
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

    /// The prefix of all keys of a volume in a cluster.
    pub(crate) fn prefix(&self) -> String {
        self.connector.dialer.prefix()
    }

    /// A new connection, which is not part of the pool.
    pub(crate) fn connect(&self) -> Result<Conn, EngineError> {
        self.connector.connect()
    }

    /// Whether the servers are a cluster. Connects to find out, if it is unknown.
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

    /// Sends a pipeline, which may depend on the server process, until it is answered. Unless it
    /// may run twice, it is sent again only if no server can have received any of it.
    fn send<'p>(
        &self,
        pipeline: impl Fn(u64) -> Cow<'p, Pipeline>,
        twice: bool,
    ) -> Result<Answered, EngineError> {
        let mut redirects = 0;
        loop {
            let (outcome, used) = self.with(|conn| {
                let used = conn.used;
                let answers = conn.exchange(&pipeline(conn.process)).inspect_err(|_| self.forget());
                (answers.map(|answers| self.answered(conn, answers)), used)
            })?;
            match outcome {
                // A node that redirects has done nothing.
                Ok(Answered { elsewhere: true, .. }) if redirects < REDIRECTS => redirects += 1,
                Ok(answered) => return Ok(answered),
                // The connection was stale.
                Err(failure) if used && (twice || !failure.sent) => {}
                Err(Failure { sent: true, reason }) if !twice => {
                    return Err(self.errors().indeterminate(reason));
                }
                Err(failure) => return Err(self.errors().unavailable(failure.reason)),
            }
        }
    }

    /// Runs commands that may run twice.
    pub(crate) fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, EngineError> {
        let Answered { answers, from, .. } = self.send(|_| Cow::Borrowed(pipeline), true)?;
        self.ask_again(pipeline, answers, &from)
    }

    /// Runs commands that depend on the server process. Returns the process, too.
    pub(crate) fn ask_by<'p>(
        &self,
        pipeline: impl Fn(u64) -> Cow<'p, Pipeline>,
    ) -> Result<(Vec<Value>, u64), EngineError> {
        let answered = self.send(pipeline, true)?;
        Ok((answered.answers, answered.process))
    }

    /// Runs pipelines one after the other on one connection. They may run twice and have no
    /// scripts. `next` makes each of the server process and of the first value in the first answer
    /// to the one before. It is sent as soon as that value has come. `take` gets the answers.
    /// Returns the process.
    pub(crate) fn chain(
        &self,
        next: impl Fn(u64, Option<&Value>) -> Option<Pipeline>,
        mut take: impl FnMut(Vec<Value>),
    ) -> Result<u64, EngineError> {
        let (mut redirects, mut taken) = (0, false);
        loop {
            let (outcome, used) = self.with(|conn| {
                let (process, used) = (conn.process, conn.used);
                let mut run = || {
                    let mut now = next(process, None);
                    if let Some(first) = &now {
                        conn.begin(first)?;
                    }
                    while let Some(pipeline) = now {
                        let (answers, following) =
                            conn.proceed(pipeline.len(), |value| next(process, Some(value)))?;
                        let answered = self.answered(conn, answers);
                        if answered.elsewhere && !taken && redirects < REDIRECTS {
                            redirects += 1;
                            return Ok(false);
                        }
                        taken = true;
                        take(answered.answers);
                        now = following;
                    }
                    Ok(true)
                };
                let outcome: Result<bool, Failure> = run();
                (outcome.inspect_err(|_| self.forget()).map(|done| done.then_some(process)), used)
            })?;
            match outcome {
                Ok(Some(process)) => return Ok(process),
                // A node that redirects has done nothing.
                Ok(None) => {}
                // The connection was stale.
                Err(_) if used && !taken => {}
                Err(failure) => return Err(self.errors().unavailable(failure.reason)),
            }
        }
    }

    /// Commits with one command, which must not run twice.
    pub(crate) fn commit(&self, mut pipeline: Pipeline) -> Result<Value, EngineError> {
        if self.config().wait_replicas > 0 {
            self.wait(&mut pipeline);
        }
        let mut answers = self.send(|_| Cow::Borrowed(&pipeline), false)?.answers.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil);
        // Also after a conflict: it may come from a commit that the replicas do not have yet.
        let done = !matches!(answer, Value::ServerError(_));
        if answers.next().is_some_and(|have| done && !self.is_enough(&have)) {
            self.forget();
            let reason =
                format!("it has not reached {} replicas (wait-replicas)", self.config().wait_replicas);
            return Err(self.errors().indeterminate(reason));
        }
        Ok(answer)
    }

    /// Whether an answer to [`Self::wait`] says that there are enough replicas.
    fn is_enough(&self, have: &Value) -> bool {
        matches!(have, Value::Int(have) if *have >= i64::from(self.config().wait_replicas))
    }

    /// Adds the WAIT command. It returns how many replicas have all changes before it, as soon as
    /// there are enough.
    pub(crate) fn wait(&self, pipeline: &mut Pipeline) {
        // It must answer before our own deadline.
        let timeout = u64::try_from(self.config().read_timeout.as_millis() * 3 / 4).unwrap_or(u64::MAX);
        let wait = pipeline.command("WAIT");
        wait.push_number(u64::from(self.config().wait_replicas));
        wait.push_number(timeout.max(1));
    }

    /// Waits until enough replicas have all earlier commits. This needs a change of its own,
    /// because from Redis 7.2 on a connection waits only for its own changes. `key` holds a number.
    pub(crate) fn harden(&self, key: &[u8]) -> Result<(), EngineError> {
        if self.config().wait_replicas == 0 {
            return Ok(());
        }
        let mut pipeline = Pipeline::default();
        pipeline.command("INCRBY").extend([key, b"0"]);
        self.wait(&mut pipeline);
        self.replicated(self.send(|_| Cow::Borrowed(&pipeline), true)?.answers)
    }

    /// Checks that the last answer, to [`Self::wait`], has enough replicas.
    pub(crate) fn replicated(&self, answers: Vec<Value>) -> Result<(), EngineError> {
        let mut have = Value::Nil;
        for answer in answers {
            have = self.errors().sound(answer)?;
        }
        let reason = "fewer replicas are connected than wait-replicas wants";
        if self.is_enough(&have) { Ok(()) } else { Err(self.errors().unavailable(reason)) }
    }

    /// Checks whether the answers come from the right server. A connection to a wrong one is not
    /// used again. If the volume is on another node now, that node is used next.
    fn answered(&self, conn: &mut Conn, answers: Vec<Value>) -> Answered {
        let mut elsewhere = false;
        if answers.iter().any(is_wrong_server) {
            conn.sound = false;
            self.forget();
            for answer in &answers {
                if let Some(Redirect::Moved(address)) = Redirect::of(answer, &conn.address) {
                    self.connector.finder.found(address);
                    elsewhere = true;
                }
            }
        }
        Answered { answers, elsewhere, from: conn.address.clone(), process: conn.process }
    }

    /// While a slot moves, sends commands for keys that have moved to the new node. This works only
    /// for commands on one key: of several keys, or in a script, those that did not move yet would
    /// look absent.
    fn ask_again(
        &self,
        pipeline: &Pipeline,
        mut answers: Vec<Value>,
        from: &Address,
    ) -> Result<Vec<Value>, EngineError> {
        let mut asked: Vec<usize> = Vec::new();
        let mut to = None;
        for (at, answer) in answers.iter().enumerate() {
            if let Some(Redirect::Ask(address)) = Redirect::of(answer, from)
                && pipeline.is_of_one_key(at)
            {
                asked.push(at);
                to = Some(address);
            }
        }
        let Some(to) = to else { return Ok(answers) };
        let mut conn = self.connector.connect_to(&to)?;
        let again = conn.exchange(&pipeline.asking(&asked));
        let again = again.map_err(|failure| self.errors().unavailable(failure.reason))?;
        // Each is preceded by the answer to ASKING.
        for (at, answer) in asked.iter().zip(again.into_iter().skip(1).step_by(2)) {
            answers[*at] = answer;
        }
        Ok(answers)
    }

    /// What broke one connection may have broken the other idle ones, too, and another server may
    /// have taken over.
    fn forget(&self) {
        self.connections.forget();
        self.connector.finder.forget();
    }
}

/// The answers of a server.
struct Answered {
    answers: Vec<Value>,
    /// Whether the volume is on another node now.
    elsewhere: bool,
    from: Address,
    process: u64,
}
