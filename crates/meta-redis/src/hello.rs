//! How a connection begins: who we are, which database, and whether the server is the one we want.
//!
//! What must stay true: a server that the sentinels call master is asked whether it agrees, and
//! nothing is written before it is known whether the servers are a cluster, since that decides what
//! keys are called.

use std::{
    hash::{Hash, Hasher},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;
use rustc_hash::FxHasher;
use sluice_meta::engine::EngineError;

use crate::{
    config::{Address, Servers},
    conn::Conn,
    error::story,
    keys::Keys,
    pipeline::Pipeline,
    pool::Pool,
    wire::Wire,
};

/// What a server says of itself. All of it is missing if the user may not ask.
pub(crate) struct About(String);

impl About {
    /// Reads the answer to INFO.
    pub(crate) fn read(answer: Option<Value>) -> Self {
        Self(match answer {
            Some(Value::BulkString(info)) => String::from_utf8_lossy(&info).into_owned(),
            _ => String::new(),
        })
    }

    /// A line of it.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(of, _)| *of == name).map(|(_, value)| value.trim())
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.field("role") == Some("slave")
    }

    /// Differs between two processes, be it that one took the other's place.
    fn process(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.field("run_id").map_or(0, |id| {
            id.hash(&mut hasher);
            hasher.finish()
        })
    }
}

impl Pool {
    /// A new connection to the server that takes writes.
    pub(crate) fn connect(&self) -> Result<Conn, EngineError> {
        loop {
            let address = self.finder.locate(self)?;
            let known = self.clustered.get().is_some();
            let conn = self.connect_to(&address).inspect_err(|_| self.finder.forget())?;
            // The node that the URL names need not be the one that has the volume.
            if known || self.clustered.get() != Some(&true) {
                return Ok(conn);
            }
        }
    }

    /// A new connection to that server.
    pub(crate) fn connect_to(&self, address: &Address) -> Result<Conn, EngineError> {
        let failed = |error: io::Error| self.unavailable(format!("{address}: {}", story(&error)));
        let mut wire = self.dial(address, self.config.dial_timeout).map_err(failed)?;
        let mut hello = Pipeline::default();
        self.authenticate(&mut hello);
        // Somebody else may learn it meanwhile.
        let known = self.clustered.get().copied();
        if known == Some(false) {
            self.select(&mut hello);
        }
        hello.command("INFO");
        let about = self.greet(&mut wire, &hello, failed)?;
        let clustered = about.field("cluster_enabled") == Some("1");
        if known.is_none() && !clustered {
            let mut choice = Pipeline::default();
            self.select(&mut choice);
            self.greet(&mut wire, &choice, failed)?;
        }
        if *self.clustered.get_or_init(|| clustered) && !clustered && about.field("role").is_some() {
            return Err(self.refused(format!("{address} belongs to no cluster; name one server alone")));
        }
        if matches!(self.config.servers, Servers::Sentinel { .. }) && about.is_replica() {
            return Err(self.unavailable(format!(
                "{address}, which a sentinel calls the master, is a replica: a failover is under way"
            )));
        }
        wire.deadlines(self.config.read_timeout, self.config.write_timeout).map_err(failed)?;
        let now = Instant::now();
        let slot_key = (self.clustered.get() == Some(&true)).then(|| Arc::from(&*self.slot_key()));
        Ok(Conn {
            wire,
            address: address.clone(),
            process: about.process(),
            slot_key,
            born: now,
            idle: now,
            used: false,
            sound: true,
        })
    }

    /// A connection on which nothing was said yet, and on which every answer has to come within
    /// `patience`.
    pub(crate) fn dial(&self, address: &Address, patience: Duration) -> io::Result<Wire> {
        Wire::connect(address, self.encryption.as_ref(), patience)
    }

    /// Says who we are.
    pub(crate) fn authenticate(&self, pipeline: &mut Pipeline) {
        if let Some(password) = &self.config.password {
            let auth = pipeline.command("AUTH");
            auth.extend(self.config.user.as_deref().map(str::as_bytes));
            auth.push(password.as_bytes());
        }
    }

    /// What all keys of a volume in a cluster begin with: what is in braces decides alone where a
    /// key is.
    pub(crate) fn prefix(&self) -> String {
        format!("{{{}}}", self.config.db)
    }

    /// A key that never exists, in the slot of the volume. While the slot moves, a script that
    /// declares it is refused whole, instead of failing half-way at a key that has moved.
    pub(crate) fn slot_key(&self) -> Vec<u8> {
        Keys::new(self.prefix().as_bytes(), self.config.db).word("sluice:nothing").to_vec()
    }

    fn select(&self, pipeline: &mut Pipeline) {
        if self.config.db != 0 {
            pipeline.command("SELECT").push_number(u64::from(self.config.db));
        }
    }

    /// Exchanges the first words; what the last answer says of the server.
    fn greet(
        &self,
        wire: &mut Wire,
        words: &Pipeline,
        failed: impl Fn(io::Error) -> EngineError + Copy,
    ) -> Result<About, EngineError> {
        if words.len() == 0 {
            return Ok(About::read(None));
        }
        wire.send(&words.render(false, None)).map_err(failed)?;
        let mut last = None;
        for at in 0..words.len() {
            let answer = wire.receive().map_err(failed)?;
            let denied = matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM");
            // Who may not ask for information may be allowed everything else.
            last = Some(if denied && at + 1 == words.len() { Value::Nil } else { self.sound(answer)? });
        }
        Ok(About::read(last))
    }
}
