//! A client of a cache group: whom it asks for a block.
//!
//! What must stay true: no read waits for a silent member longer than members usually take, nor
//! longer than a second for one that answers others slowly. A client that gets no answer reads the
//! object store.

mod member_list;

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
    members::{Directory, Members},
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

    /// Has a member drop a block whose file is damaged.
    fn evict_at(&self, node: Arc<Node>, key: BlockKey) {
        tracing::warn!(address = node.address, block = key.id, "a block of the cache group is damaged");
        let (ring, limit) = (Arc::clone(&self.ring), self.config.remote_timeout);
        let request = self.request(Kind::Evict, key, 0..0);
        drop(self.runtime.spawn(async move {
            let _ = node.ask(&ring, request, None, limit).await;
        }));
    }
}

impl Peers for Group {
    fn owner_host(&self, block: BlockKey) -> Option<String> {
        let states = Arc::clone(&self.states.read());
        let at = owners(&states.shares, block, 1, |at| self.is_usable(&states, at)).first().copied()?;
        Some(states.members[at].machine().to_owned())
    }

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
