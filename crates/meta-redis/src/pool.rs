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
    error::{Errors, Redirect, is_unfit},
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

    /// Sends a pipeline, which may depend on the process that gets it, until it is answered. Unless
    /// it may be done twice, it is sent again only if no server can have seen any of it.
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
                // Who sends us elsewhere has done nothing.
                Ok(Answered { elsewhere: true, .. }) if redirects < REDIRECTS => redirects += 1,
                Ok(answered) => return Ok(answered),
                // The connection went stale.
                Err(failure) if used && (twice || !failure.sent) => {}
                Err(Failure { sent: true, reason }) if !twice => {
                    return Err(self.errors().indeterminate(reason));
                }
                Err(failure) => return Err(self.errors().unavailable(failure.reason)),
            }
        }
    }

    /// Asks what may be asked twice.
    pub(crate) fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, EngineError> {
        let Answered { answers, from, .. } = self.send(|_| Cow::Borrowed(pipeline), true)?;
        self.ask_again(pipeline, answers, &from)
    }

    /// Asks what depends on which process answers it. Returns that, too.
    pub(crate) fn ask_by(
        &self,
        pipeline: impl Fn(u64) -> Pipeline,
    ) -> Result<(Vec<Value>, u64), EngineError> {
        let answered = self.send(|process| Cow::Owned(pipeline(process)), true)?;
        Ok((answered.answers, answered.process))
    }

    /// Commits, by one command, what must not be done twice.
    pub(crate) fn commit(&self, mut pipeline: Pipeline) -> Result<Value, EngineError> {
        if self.config().wait_replicas > 0 {
            self.wait(&mut pipeline);
        }
        let mut answers = self.send(|_| Cow::Borrowed(&pipeline), false)?.answers.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil);
        // Also of a conflict: that is what a commit met which the replicas may not have.
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
        self.replicated(self.send(|_| Cow::Borrowed(&pipeline), true)?.answers)
    }

    /// Whether the last of the answers, to [`Self::wait`], says that there are enough replicas.
    pub(crate) fn replicated(&self, answers: Vec<Value>) -> Result<(), EngineError> {
        let mut have = Value::Nil;
        for answer in answers {
            have = self.errors().sound(answer)?;
        }
        let reason = "fewer replicas are connected than wait-replicas wants";
        if self.is_enough(&have) { Ok(()) } else { Err(self.errors().unavailable(reason.into())) }
    }

    /// What the answers say of the server. A connection to one that is not, or no longer, the one
    /// to ask is not used again; if the volume is on another node now, that is then the one to ask.
    fn answered(&self, conn: &mut Conn, answers: Vec<Value>) -> Answered {
        let mut elsewhere = false;
        if answers.iter().any(is_unfit) {
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

    /// Whatever ended one connection ended the other idle ones too, and it may be another server's
    /// turn.
    fn forget(&self) {
        self.connections.forget();
        self.connector.finder.forget();
    }
}

/// What a server answered.
struct Answered {
    answers: Vec<Value>,
    /// Whether the volume is on another node now.
    elsewhere: bool,
    from: Address,
    process: u64,
}
