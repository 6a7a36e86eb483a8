//! The handshake of a connection: authenticates, selects the database, and checks that the server
//! is the right one.
//!
//! What must stay true: a server that the sentinels report as master must itself report this role.
//! Nothing is written before it is known whether the servers are a cluster, because that decides
//! the names of keys.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use redis::Value;
use rustc_hash::FxHasher;
use sluice_meta::engine::EngineError;
use sluice_net::{Address, describe};

use crate::{config::Servers, conn::Conn, dial::Dialer, locate::Finder, pipeline::Pipeline};

/// The INFO of a server. It is empty if the user may not request it.
pub(crate) struct ServerInfo(String);

impl ServerInfo {
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

    /// An id of the server process. It changes when a server is restarted or replaced.
    fn process(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.field("run_id").map_or(0, |id| {
            id.hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// Makes connections to the server that takes writes.
pub(crate) struct Connector {
    pub(crate) dialer: Dialer,
    pub(crate) finder: Finder,
}

impl Connector {
    /// A new connection to the server that takes writes.
    pub(crate) fn connect(&self) -> Result<Conn, EngineError> {
        loop {
            let address = self.finder.locate(&self.dialer)?;
            let known = self.dialer.clustered.get().is_some();
            let conn = self.connect_to(&address).inspect_err(|_| self.finder.forget())?;
            // The node in the URL may not be the one that has the volume.
            if known || self.dialer.clustered.get() != Some(&true) {
                return Ok(conn);
            }
        }
    }

    /// A new connection to that server.
    pub(crate) fn connect_to(&self, address: &Address) -> Result<Conn, EngineError> {
        let Dialer { config, errors, clustered, .. } = &self.dialer;
        let failed = |error| errors.unavailable(format!("{address}: {}", describe(&error)));
        let mut wire = self.dialer.dial(address, config.dial_timeout).map_err(failed)?;
        let mut first = Pipeline::default();
        self.dialer.authenticate(&mut first);
        // Another thread may set it meanwhile.
        let known = clustered.get().copied();
        if known == Some(false) {
            self.dialer.select(&mut first);
        }
        first.command("INFO");
        wire.send(&first.render(false, None)).map_err(failed)?;
        // A server that refuses the connection says why, and closes it.
        for _ in 1..first.len() {
            errors.sound(wire.receive().map_err(failed)?)?;
        }
        let about = match wire.receive().map_err(failed)? {
            // A user without the right to INFO may have all other rights.
            Value::ServerError(error) if error.code() == "NOPERM" => ServerInfo::read(None),
            answer => ServerInfo::read(Some(errors.sound(answer)?)),
        };
        let is_cluster = about.field("cluster_enabled") == Some("1");
        if known.is_none() && !is_cluster {
            let mut choice = Pipeline::default();
            self.dialer.select(&mut choice);
            for answer in wire.talk(&choice.render(false, None), choice.len()).map_err(failed)? {
                errors.sound(answer)?;
            }
        }
        if *clustered.get_or_init(|| is_cluster) && !is_cluster && about.field("role").is_some() {
            return Err(errors.refused(format!("{address} belongs to no cluster; name one server alone")));
        }
        if matches!(config.servers, Servers::Sentinel { .. }) && about.is_replica() {
            return Err(errors.unavailable(format!(
                "{address}, which a sentinel calls the master, is a replica: a failover is under way"
            )));
        }
        wire.deadlines(config.read_timeout, config.write_timeout);
        let slot_key = (clustered.get() == Some(&true)).then(|| Arc::from(&*self.dialer.slot_key()));
        let process = about.process();
        Ok(Conn { wire, address: address.clone(), process, slot_key, used: false, sound: true })
    }
}
