//! A client of a cache group: what connects a volume to the other members.
//!
//! What must stay true: a volume works without its group if the group fails. Each failure is
//! logged, and the step is tried again.

use std::{
    io,
    sync::{Arc, Weak},
};

use sluice_meta::{Interrupt, Meta, schema};
use sluice_peer::{Directory, Group, GroupConfig, GroupKey, KeyRing, Member, Members};
use sluice_types::{Clock as _, SystemClock};
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads for the connections of the group.
const THREADS: usize = 2;

/// The most bytes of the name of a group.
const MOST_NAME: usize = 255;

/// Checks the name of a group: it fits on a line of a log.
///
/// # Errors
/// What is wrong with it.
pub fn group_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the group needs a name".into()),
        long if long.len() > MOST_NAME => {
            Err(format!("the name has {} bytes, and may have {MOST_NAME}", long.len()))
        }
        odd if odd.contains(char::is_control) => {
            Err(format!("\"{}\" has control characters; leave them out", odd.escape_debug()))
        }
        name => Ok(name.to_owned()),
    }
}

/// A group as one client sees it, and the threads of its connections.
pub struct GroupClient {
    group: Arc<Group>,
    handle: Handle,
    runtime: Option<Runtime>,
}

impl GroupClient {
    /// A client of the group `name` of the volume. It knows its members already, if they could be
    /// read.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(meta: &Arc<Meta>, name: &str, config: GroupConfig) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("sluice-group")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let group = group(meta, name, config, handle.clone());
        if let Err(reason) = group.refresh() {
            tracing::warn!(reason, "the list of the cache group could not be read; it is tried again");
        }
        Ok(Self { group, handle, runtime: Some(runtime) })
    }

    /// What the data path asks.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// What runs the tasks of the group.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for GroupClient {
    /// A question to a metadata engine that is away does not hold up the end of the volume.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The group `name` of the volume, for a client that knows no member yet. It works as long as
/// `meta` is open. Its connections live on `runtime`.
pub fn group(meta: &Arc<Meta>, name: &str, config: GroupConfig, runtime: Handle) -> Arc<Group> {
    let directory = Records { meta: Arc::downgrade(meta), group: name.to_owned() };
    let ring = Arc::new(KeyRing::new(&meta.env().format().uuid, name, Vec::new()));
    Group::new(config, ring, Arc::new(directory), runtime)
}

/// The records of a group in the metadata engine.
struct Records {
    meta: Weak<Meta>,
    group: String,
}

impl Records {
    fn meta(&self) -> Result<Arc<Meta>, String> {
        self.meta.upgrade().ok_or_else(|| "the volume is being closed".to_owned())
    }
}

impl Directory for Records {
    fn members(&self) -> Result<Members, String> {
        let found =
            self.meta()?.members(&self.group, &Interrupt::never()).map_err(|error| error.to_string())?;
        let now = SystemClock.now().sec;
        let member = |member: schema::Member| Member {
            name: member.name,
            address: member.address,
            host: member.host,
            weight: member.weight,
            fingerprint: member.fingerprint,
            backup: member.backup_until > now,
        };
        Ok(Members { version: found.version, members: found.members.into_iter().map(member).collect() })
    }

    fn version(&self) -> Result<u64, String> {
        self.meta()?.members_version(&Interrupt::never()).map_err(|error| error.to_string())
    }

    fn keys(&self) -> Result<Vec<GroupKey>, String> {
        let keys = self.meta()?.group_keys(&Interrupt::never()).map_err(|error| error.to_string())?;
        let keys = std::iter::once(&keys.newest).chain(&keys.before);
        Ok(keys.map(|key| GroupKey::new(key.number, key.secret.bytes())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_fit_on_a_line() {
        for name in ["g", "a group: ü", &"n".repeat(255)] {
            assert_eq!(group_name(name).as_deref(), Ok(name));
        }
        for wrong in ["", "a\nb", "a\u{1b}[m", "a\u{85}", &"n".repeat(256)] {
            assert!(group_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
