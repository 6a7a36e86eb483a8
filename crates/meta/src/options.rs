//! The options for opening a volume, and its errors.

use std::{sync::Arc, time::Duration};

use sluice_types::{Clock, SystemClock};

use crate::{
    batch::TIMEOUT,
    effect_log::{EffectLog, Resumed},
    engine::EngineError,
    schema::{FormatError, SessionInfo},
};

/// Heartbeats after which a session that was not renewed is dead.
pub(crate) const LIFETIME: i64 = 5;
/// The cache of a client for metadata that other clients may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCache {
    /// Attributes, and as many entries.
    pub size: usize,
    /// How long a record is cached if no change notification arrives.
    pub expire: Duration,
    /// Entries of the root that are read at once when the cache begins.
    pub preload: usize,
}

impl Default for ClientCache {
    /// As JuiceFS has it.
    fn default() -> Self {
        Self { size: 12_800, expire: Duration::from_mins(1), preload: 0 }
    }
}

/// How a volume is opened.
#[derive(Clone)]
pub struct Options {
    /// Nothing may be changed, and no session is registered.
    pub read_only: bool,
    /// What other clients see of this one.
    pub info: SessionInfo,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// How long a dead engine is waited for before an operation fails with `EIO`.
    pub timeout: Duration,
    /// Whether changes may start from what this client saw last, and so save a trip. The commit
    /// compares it.
    pub record_cache: bool,
    /// Whether lookups and attributes are answered from what is remembered, while
    /// [`Meta::follow`](crate::Meta::follow) hears what others change.
    pub client_cache: Option<ClientCache>,
    /// Where is noted what a successor must know.
    pub effect_log: Option<Arc<dyn EffectLog>>,
    /// The session of a process that died, to be taken up instead of a new one.
    pub resume: Option<Resumed>,
    /// Where the time is read.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            info: SessionInfo::default(),
            heartbeat: Duration::from_secs(12),
            timeout: TIMEOUT,
            record_cache: true,
            client_cache: None,
            effect_log: None,
            resume: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// [`Self::heartbeat`] in seconds, at least one.
    pub(crate) fn heartbeat_seconds(&self) -> i64 {
        self.heartbeat.as_secs().max(1) as i64
    }

    /// How long a session lasts that is not renewed, seconds.
    pub(crate) fn session_lifetime(&self) -> i64 {
        LIFETIME * self.heartbeat_seconds()
    }
}

/// Why a volume cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no volume.
    #[error("there is no volume in this {0} database; make one with `sluice format META-URL NAME`")]
    NotFormatted(&'static str),
    /// The volume cannot be used by this client.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A volume is there already.
    #[error("the database already holds volume {0}; format does not change the name of a volume")]
    Occupied(String),
    /// Somebody else changed the settings just now.
    #[error("somebody else changed the settings of volume {0} at the same time; nothing was done, try again")]
    Changed(String),
}
