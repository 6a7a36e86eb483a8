//! What an etcd URL says: `etcd://user:password@host1:2379,host2:2379/prefix?option=value`.
//!
//! The same URL names the same keys for JuiceFS: they begin with the path, its slash included, and
//! the byte 0xFD.

use sluice_meta::engine::EngineError;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::address::{self, Address};

/// Where the cluster is and what the volume's keys begin with.
pub(super) struct Config {
    pub(super) address: Address,
    /// Most operations of one transaction.
    pub(super) most: usize,
    /// Commits under way at once. One gathers what waits meanwhile; several meet at the directories
    /// they change.
    pub(super) lanes: usize,
    /// Certificates to trust, ours, its key; PEM files.
    files: [Option<String>; 3],
    server_name: Option<String>,
}

/// What servers take unless `--max-txn-ops` says otherwise.
const MOST: usize = 128;

impl Config {
    pub(super) fn parse(url: &str) -> Result<Self, EngineError> {
        let mut address = Address::parse(url, "etcd", 2379)?;
        let options = std::mem::take(&mut address.options);
        let (files, server_name) = ([None, None, None], None);
        let mut config = Self { address, most: MOST, lanes: 1, files, server_name };
        for (name, value) in options {
            config.set(&name, value).map_err(refused)?;
        }
        if config.files[1].is_some() != config.files[2].is_some() {
            return Err(refused("a certificate of ours needs both cert and key".into()));
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "cacert" => self.files[0] = Some(value),
            "cert" => self.files[1] = Some(value),
            "key" => self.files[2] = Some(value),
            "server-name" => self.server_name = Some(value),
            "max-txn-ops" => match value.parse() {
                Ok(most @ 16..) => self.most = most,
                _ => return Err(format!("max-txn-ops={value} is no number of 16 or more")),
            },
            "max-open-conns" => self.lanes = address::lanes(name, &value, 1)?,
            "insecure-skip-verify" => {
                return Err("insecure-skip-verify is not supported; cacert names what to trust".into());
            }
            _ => tracing::warn!(option = name, "this option of the etcd URL has no effect"),
        }
        Ok(())
    }

    /// What connections are encrypted with, if they are.
    pub(super) fn tls(&self) -> Result<Option<ClientTlsConfig>, EngineError> {
        if self.files.iter().all(Option::is_none) && self.server_name.is_none() {
            return Ok(None);
        }
        let read = |file: &Option<String>| {
            let unread =
                |error| refused(format!("{} cannot be read: {error}", file.as_deref().unwrap_or("")));
            file.as_ref().map(std::fs::read).transpose().map_err(unread)
        };
        let [ca, cert, key] = [read(&self.files[0])?, read(&self.files[1])?, read(&self.files[2])?];
        let mut tls = match ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (cert, key) {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(Some(tls))
    }

    /// The address for messages.
    pub(super) fn label(&self) -> String {
        format!("etcd://{}{}", self.address.hosts.join(","), self.address.path)
    }
}

pub(super) fn refused(reason: String) -> EngineError {
    address::refused("etcd", reason)
}
