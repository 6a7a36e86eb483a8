//! The list of members of a group that a client has.

use serde::{Deserialize, Serialize};

use crate::{auth::GroupKey, tls::Fingerprint};

/// A client that shares its cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, by which blocks are given to it. A member that comes back with the same name owns
    /// the same blocks.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Name of its machine; empty if it is not known.
    #[serde(default)]
    pub host: String,
    /// How many blocks it owns, in proportion to the others; 0 for none.
    pub weight: u32,
    /// SHA-256 of its certificate; `None` if it takes unencrypted connections.
    pub fingerprint: Option<Fingerprint>,
    /// Whether it joined a moment ago, and asks the second owner for what it does not have.
    pub backup: bool,
}

impl Member {
    /// Its machine: the name, or the address if the name is not known.
    pub(crate) fn machine(&self) -> &str {
        if !self.host.is_empty() {
            return &self.host;
        }
        let (ip, _) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
        ip.trim_matches(['[', ']'])
    }
}

/// The members at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// A later list has a larger one.
    pub version: u64,
    /// In any order.
    pub members: Vec<Member>,
}

/// Where the list of members and the group's keys are kept: the metadata of the volume.
pub trait Directory: Send + Sync {
    /// The members now. Blocks.
    ///
    /// # Errors
    /// A message, if nobody answers.
    fn members(&self) -> Result<Members, String>;

    /// [`Members::version`] now, which costs less than the list. Blocks.
    ///
    /// # Errors
    /// A message, if nobody answers.
    fn version(&self) -> Result<u64, String> {
        Ok(self.members()?.version)
    }

    /// The keys that are valid now. Blocks.
    ///
    /// # Errors
    /// A message, if nobody answers.
    fn keys(&self) -> Result<Vec<GroupKey>, String>;
}
