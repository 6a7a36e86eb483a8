//! How a client of a cache group gets the list of members.
//!
//! What must stay true: the client reads the list from the database at the start, and if no member
//! answers. Otherwise it gets newer lists from the members.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use sluice_data::BlockKey;
use sluice_types::Rng;

use super::Group;
use crate::{
    frame::Kind,
    members::{Member, Members},
    node::Node,
};

/// Shortest pause while others know a newer list, and the same for each member of the list. When
/// many members start at once, each of them would otherwise read a list for each other one.
const NEWER_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_PER_MEMBER: Duration = Duration::from_millis(10);
/// Time after which a member reads the whole list although its version is the same: then members
/// are gone whose sessions expired without anybody noticing.
const WHOLE: Duration = Duration::from_mins(10);
/// Members that are notified of a new list. The others learn of it from the answers that they get.
const NOTIFIED: usize = 16;

impl Group {
    /// Takes the list of members and the keys from the metadata engine. Blocks.
    ///
    /// # Errors
    /// A message, if it does not answer. What was known stays.
    pub fn refresh(&self) -> Result<(), String> {
        self.polling.ask(Instant::now());
        self.ring.replace(self.directory.keys()?);
        self.adopt(self.directory.members()?, true);
        Ok(())
    }

    /// What a member does from time to time: takes the keys from the metadata engine, and the list
    /// if it is another one. Blocks.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn beat(&self) -> Result<(), String> {
        let is_fresh = self.whole.lock().is_some_and(|whole| whole.elapsed() < WHOLE);
        if !is_fresh || self.directory.version()? != self.version() {
            return self.refresh();
        }
        self.polling.ask(Instant::now());
        self.ring.replace(self.directory.keys()?);
        Ok(())
    }

    /// Has other members learn that there is a newer list than theirs.
    pub fn announce(&self) {
        let states = Arc::clone(&self.states.read());
        let mut nodes: Vec<_> = states.nodes.iter().enumerate().collect();
        let mut rng = Rng::from_os();
        while nodes.len() > NOTIFIED + 1 {
            nodes.swap_remove(rng.below(nodes.len() as u64) as usize);
        }
        let request = self.request(Kind::List, BlockKey { id: 0, index: 0, size: 0 }, 0..0);
        for (_, node) in nodes.into_iter().filter(|(at, _)| Some(*at) != states.own) {
            let (node, ring, limit) = (Arc::clone(node), Arc::clone(&self.ring), self.config.remote_timeout);
            let request = request.clone();
            drop(self.runtime.spawn(async move {
                // Who does not hear of it reads the list with its heartbeat.
                let _ = node.ask(&ring, request, None, limit).await;
            }));
        }
    }

    /// Takes a list. One that another client has is taken unless a newer one is known. What the
    /// metadata engine has counts in any case: it may have lost the newest lists.
    fn adopt(&self, list: Members, from_engine: bool) {
        let mut states = self.states.write();
        if from_engine {
            *self.whole.lock() = Some(Instant::now());
        } else if list.version < states.version {
            return;
        }
        if list.version != states.version {
            self.polling.learned();
        }
        let node = |member: &Member| {
            let (min_timeout, runtime) = (self.config.min_timeout, self.runtime.clone());
            Node::new(member.address.clone(), member.fingerprint, min_timeout, runtime)
        };
        self.version.store(list.version, Ordering::Relaxed);
        *states = Arc::new(states.next(list, self.config.own.as_deref(), node));
    }

    /// A client has a list of this version. The list is read soon: never so often that the members
    /// of a large group, which all start at once, keep the metadata engine busy.
    pub(crate) fn heard_of(&self, version: u64) {
        if version <= self.version() {
            return;
        }
        let members = self.states.read().members.len() as u32;
        let pause = NEWER_PAUSE.max(PAUSE_PER_MEMBER * members);
        let now = Instant::now();
        let elapsed = self.polling.elapsed(now).unwrap_or(pause);
        let Some(left) = pause.checked_sub(elapsed).filter(|left| !left.is_zero()) else {
            self.polling.ask(now);
            return self.ask_directory();
        };
        if self.will_ask.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Weak::clone(&self.this);
        drop(self.runtime.spawn(async move {
            tokio::time::sleep(left).await;
            if let Some(this) = this.upgrade() {
                this.will_ask.store(false, Ordering::Release);
                this.heard_of(version);
            }
        }));
    }

    /// What takes the newer list, or its failure; `None` while another one is being fetched.
    fn begin_update(&self, from_engine: bool) -> Option<impl FnOnce(Option<Members>) + Send + 'static> {
        let this = self.this.upgrade()?;
        (!this.updating.swap(true, Ordering::AcqRel)).then_some(move |list: Option<Members>| {
            if let Some(list) = list {
                this.adopt(list, from_engine);
            }
            this.updating.store(false, Ordering::Release);
        })
    }

    /// Fetches a newer list from a member that has one.
    pub(super) fn update_from(&self, node: Arc<Node>) {
        let Some(end) = self.begin_update(false) else { return };
        let (ring, limit) = (Arc::clone(&self.ring), self.config.remote_timeout);
        let request = self.request(Kind::List, BlockKey { id: 0, index: 0, size: 0 }, 0..0);
        drop(self.runtime.spawn(async move {
            let answer = node.ask(&ring, request, None, limit).await;
            let list = answer.ok().and_then(|answer| serde_json::from_slice(&answer.payload).ok());
            end(list);
        }));
    }

    /// Asks the metadata engine for the keys, and for the list if it is another one.
    pub(super) fn ask_directory(&self) {
        let Some(end) = self.begin_update(true) else { return };
        let (directory, ring, known) = (Arc::clone(&self.directory), Arc::clone(&self.ring), self.version());
        drop(self.runtime.spawn_blocking(move || {
            // The key may have changed since, too.
            if let Ok(keys) = directory.keys() {
                ring.replace(keys);
            }
            let list = match directory.version() {
                Ok(version) if version == known => Ok(None),
                Ok(_) => directory.members().map(Some),
                Err(reason) => Err(reason),
            };
            end(list.unwrap_or_else(|reason| {
                tracing::debug!(reason, "no list of members");
                None
            }));
        }));
    }
}
