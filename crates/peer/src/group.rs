//! A client of a cache group: whom it asks for a block.
//!
//! What must stay true: no read waits for a silent member longer than members usually take, nor
//! longer than a second for one that answers others slowly. A client that gets no answer reads the
//! object store. The client reads the list of members from the database at the start, and if no
//! member answers. Otherwise it gets newer lists from the members.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sluice_data::{Asked, BlockKey, OwnerAction, Peers};
use sluice_types::Rng;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    auth::{self, KeyRing},
    directory_polling::DirectoryPolling,
    frame::{Kind, Request, Status},
    member_states::MemberStates,
    members::{Directory, Member, Members},
    node::{Node, Unanswered},
    placement::owners,
    stats::Stats,
};

/// Members that are tried for a block before the object store.
const TRIES: usize = 2;
/// Longest pause between two questions to the metadata engine while no member answers.
const DIRECTORY_PAUSE: Duration = Duration::from_secs(5);
/// As [`DIRECTORY_PAUSE`], for a client that knows no member.
const EMPTY_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of uploaded blocks that are on their way to their owners; others are not offered.
const OFFERED: usize = 64 << 20;
/// Shortest pause while others know a newer list, and the same for each member of the list. When
/// many members start at once, each of them would otherwise read a list for each other one.
const NEWER_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_PER_MEMBER: Duration = Duration::from_millis(10);
/// Time after which a member reads the whole list although its version is the same: then members
/// are gone whose sessions expired without anybody noticing.
const WHOLE: Duration = Duration::from_mins(10);
/// Members that are notified of a new list. The others learn of it from the answers that they get.
const NOTIFIED: usize = 16;
/// What an answer may cost if there is no other member to compare with.
const SLOWEST: Duration = Duration::from_secs(1);
/// Longest time for an answer of a former owner to arrive: a client waits for both members.
const FORMER: Duration = Duration::from_secs(1);
/// Longest time for a member to read a block into its cache.
const WARMING: Duration = Duration::from_mins(2);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The name under which this client owns blocks; `None` if it only takes (`--no-sharing`).
    pub own: Option<String>,
    /// Longest time from the beginning of an answer to its end (`--remote-timeout`).
    pub remote_timeout: Duration,
    /// Shortest wait for an answer to begin before the object store is read instead.
    pub min_timeout: Duration,
    /// Offer uploaded blocks to their owners (`--fill-group-cache`).
    pub fill: bool,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            own: None,
            remote_timeout: Duration::from_secs(10),
            min_timeout: Duration::from_millis(20),
            fill: false,
        }
    }
}

/// A client of a group. It may be shared by several volumes of one process.
pub struct Group {
    this: Weak<Self>,
    config: GroupConfig,
    ring: Arc<KeyRing>,
    directory: Arc<dyn Directory>,
    states: RwLock<Arc<MemberStates>>,
    /// The version of the list, which is looked at with each request of other clients.
    version: AtomicU64,
    /// Whether a newer list is being fetched.
    updating: AtomicBool,
    /// Whether the metadata engine is asked in a moment.
    will_ask: AtomicBool,
    polling: DirectoryPolling,
    /// When the whole list came from the metadata engine.
    whole: Mutex<Option<Instant>>,
    runtime: Handle,
    /// Bytes that may still be offered.
    offers: Arc<Semaphore>,
    pub(crate) stats: Arc<Stats>,
}

/// An uploaded block that is on its way to its owner, as long as any of its bytes is in memory.
struct Offered {
    data: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Offered {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("config", &self.config)
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}

impl Group {
    /// A client that knows nobody yet: see [`Self::refresh`]. Its connections live on `runtime`.
    pub fn new(
        config: GroupConfig,
        ring: Arc<KeyRing>,
        directory: Arc<dyn Directory>,
        runtime: Handle,
    ) -> Arc<Self> {
        // The first random number takes tens of milliseconds. No read shall wait for it.
        drop(runtime.spawn_blocking(auth::prepare));
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            config,
            ring,
            directory,
            states: RwLock::default(),
            version: AtomicU64::new(0),
            updating: AtomicBool::new(false),
            will_ask: AtomicBool::new(false),
            polling: DirectoryPolling::new(Rng::from_os()),
            whole: Mutex::new(None),
            runtime,
            offers: Arc::new(Semaphore::new(OFFERED)),
            stats: Arc::default(),
        })
    }

    /// What this client counts.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The members that this client knows.
    pub fn members(&self) -> Members {
        let states = self.states.read();
        Members { version: states.version, members: states.members.clone() }
    }

    /// The keys of the group.
    pub(crate) fn ring(&self) -> &Arc<KeyRing> {
        &self.ring
    }

    /// The version of the list that this client has.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

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

    /// Asks the members that should have a block, one after the other.
    async fn fetch_block(&self, key: BlockKey, range: Range<u32>) -> Option<Bytes> {
        let states = Arc::clone(&self.states.read());
        let candidates = owners(&states.shares, key, TRIES, |at| self.is_usable(&states, at));
        let (mut kind, limit) = (Kind::Get, self.config.remote_timeout);
        for at in candidates {
            if Some(at) == states.own {
                if !states.members[at].backup {
                    return None;
                }
                // Until a moment ago the next one owned the block.
                kind = Kind::GetCached;
                continue;
            }
            match self.ask(&states.nodes[at], kind, key, range.clone(), limit).await {
                Ok(found) => return found,
                Err(Unanswered::Slow) => return None,
                Err(Unanswered::Lost(_)) => {}
            }
        }
        // Without members, the first one may have come.
        let most = if states.members.is_empty() { EMPTY_PAUSE } else { DIRECTORY_PAUSE };
        if self.polling.is_due(Instant::now(), most) {
            self.ask_directory();
        }
        None
    }

    /// Whether a member may be asked: this client itself, and all that are not left alone.
    fn is_usable(&self, states: &MemberStates, at: usize) -> bool {
        let node = &states.nodes[at];
        let most = || states.fastest_but(at).map_or(SLOWEST, |fastest| node.most(fastest));
        Some(at) == states.own || node.is_usable(&self.ring, most)
    }

    /// Notes what an answer cost, and leaves a member alone that is much slower than others.
    fn compare(&self, node: &Arc<Node>, took: Duration, bytes: u32) {
        if !node.note_cost(took, bytes) {
            return;
        }
        let states = Arc::clone(&self.states.read());
        let suspended = states.nodes.iter().filter(|node| node.is_suspended()).count();
        let at = states.position(node);
        // When most are slow, it is for another reason.
        if let Some(fastest) =
            at.and_then(|at| states.fastest_but(at)).filter(|_| suspended * 2 < states.nodes.len())
        {
            node.compare(fastest);
        }
    }

    /// An answer still arrives. It counts if it costs too much already.
    fn compare_unfinished(&self, node: &Arc<Node>, took: Duration, bytes: u32) {
        let states = Arc::clone(&self.states.read());
        let fastest = states.position(node).and_then(|at| states.fastest_but(at));
        if fastest.is_some_and(|fastest| node.is_too_slow(took, bytes, fastest)) {
            self.compare(node, took, bytes);
        }
    }

    async fn ask(
        &self,
        node: &Arc<Node>,
        kind: Kind,
        key: BlockKey,
        range: Range<u32>,
        limit: Duration,
    ) -> Result<Option<Bytes>, Unanswered> {
        let (started, bytes) = (Instant::now(), range.end - range.start);
        let request = self.request(kind, key, range);
        let late = |took| self.compare_unfinished(node, took, bytes);
        let answer = match node.read(&self.ring, request, limit, &late).await {
            Ok(answer) => answer,
            Err(unanswered) => {
                self.stats.errors.add(1);
                if matches!(unanswered, Unanswered::Slow) {
                    self.compare(node, started.elapsed(), 0);
                }
                return Err(unanswered);
            }
        };
        self.stats.times.observe(started.elapsed());
        // What was read from the object store first says nothing of the member.
        if answer.status == Status::Done && !answer.waited {
            self.compare(node, started.elapsed(), bytes);
        }
        if answer.version > self.version() {
            self.update_from(Arc::clone(node));
        }
        if answer.damaged {
            self.stats.errors.add(1);
            self.evict_at(Arc::clone(node), key);
            return Ok(None);
        }
        if answer.status != Status::Done {
            self.stats.misses.add(1);
            return Ok(None);
        }
        self.stats.hits.add(1);
        self.stats.hit_bytes.add(answer.payload.len() as u64);
        Ok(Some(answer.payload))
    }

    fn request(&self, kind: Kind, key: BlockKey, range: Range<u32>) -> Request {
        Request { id: 0, kind, version: self.version(), key, range }
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

    /// Has a member drop a block whose file is damaged.
    fn evict_at(&self, node: Arc<Node>, key: BlockKey) {
        tracing::warn!(address = node.address, block = key.id, "a block of the cache group is damaged");
        let (ring, limit) = (Arc::clone(&self.ring), self.config.remote_timeout);
        let request = self.request(Kind::Evict, key, 0..0);
        drop(self.runtime.spawn(async move {
            let _ = node.ask(&ring, request, None, limit).await;
        }));
    }

    /// Fetches a newer list from a member that has one.
    fn update_from(&self, node: Arc<Node>) {
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
    fn ask_directory(&self) {
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

impl Peers for Group {
    fn owns(&self, block: BlockKey) -> bool {
        let states = Arc::clone(&self.states.read());
        let Some(own) = states.own else { return false };
        owners(&states.shares, block, 1, |at| self.is_usable(&states, at)).first() == Some(&own)
            && !states.members[own].backup
    }

    fn fetch(&self, block: BlockKey, range: Range<u32>) -> Asked<'_, Bytes> {
        Box::pin(self.fetch_block(block, range))
    }

    fn fetch_from_former(&self, block: BlockKey) -> Asked<'_, Bytes> {
        Box::pin(async move {
            let states = Arc::clone(&self.states.read());
            let own = states.own.filter(|own| states.members[*own].backup)?;
            let usable = |at: usize| self.is_usable(&states, at);
            let [first, former] = owners(&states.shares, block, 2, usable)[..] else { return None };
            // A client asks this member for a block of another one only because that one is slow or
            // silent: this one would wait for it, too.
            if first != own {
                return None;
            }
            let limit = self.config.remote_timeout.min(FORMER);
            self.ask(&states.nodes[former], Kind::GetCached, block, 0..block.size, limit).await.ok()?
        })
    }

    fn at_owner(&self, block: BlockKey, action: OwnerAction) -> Asked<'_, bool> {
        Box::pin(async move {
            let states = Arc::clone(&self.states.read());
            let usable = |at: usize| self.is_usable(&states, at);
            let at = owners(&states.shares, block, 1, usable).first().copied()?;
            if Some(at) == states.own {
                return None;
            }
            let limit = self.config.remote_timeout;
            let (kind, limit) = match action {
                OwnerAction::Warm => (Kind::Warm, WARMING),
                OwnerAction::Find => (Kind::Has, limit),
                OwnerAction::Evict => (Kind::Evict, limit),
            };
            let request = self.request(kind, block, 0..0);
            let answer = states.nodes[at].ask(&self.ring, request, None, limit).await.ok()?;
            Some(answer.status == Status::Done)
        })
    }

    fn offer(&self, block: BlockKey, data: &Bytes) {
        if !self.config.fill {
            return;
        }
        let states = Arc::clone(&self.states.read());
        let candidates = owners(&states.shares, block, 1, |_| true);
        let Some(at) = candidates.first().copied().filter(|at| Some(*at) != states.own) else { return };
        let node = Arc::clone(&states.nodes[at]);
        if node.is_suspended() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.offers).try_acquire_many_owned(block.size) else { return };
        // Also after nobody waits for an answer, it may be queued.
        let data = Bytes::from_owner(Offered { data: data.clone(), _permit: permit });
        let (ring, limit) = (Arc::clone(&self.ring), self.config.remote_timeout);
        let request = self.request(Kind::Put, block, 0..block.size);
        drop(self.runtime.spawn(async move {
            // It is a help, no duty.
            let _ = node.ask(&ring, request, Some(data), limit).await;
        }));
    }
}
