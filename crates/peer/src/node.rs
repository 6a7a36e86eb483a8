//! The state of one member in this client: its connections, its latency, and whether this client
//! sends it no requests for a while.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_data::BlockKey;
use tokio::{runtime::Handle, time::timeout};

use crate::{
    auth::KeyRing,
    costs::{Costs, cost},
    frame::{Kind, Request, Status},
    health::{Advice, Health},
    latency::Latency,
    link::{Answer, Link},
    tls::Fingerprint,
};

/// Connections to a member.
const LINKS: usize = 2;
/// Wait for an answer to begin before there were enough to know how long they take.
const UNKNOWN: Duration = Duration::from_secs(1);
/// A member that answered somebody within this time is busy, not silent. On a machine with much to
/// do, it may get no processor for some tens of milliseconds.
const SILENT: Duration = Duration::from_millis(250);
/// Bytes per second. While earlier answers to this client arrive at least as fast, it waits for its
/// turn: it asked for many blocks at once, and would be the one that has them read twice.
const FLOWING: f64 = 8e6;
/// Time after which an answer that still arrives counts with what it took so far, and again after
/// as long. Few answers come to an end if all reads wait for a slow member.
const UNFINISHED: Duration = Duration::from_millis(250);
/// Shortest wait for a connection.
const CONNECTING: Duration = Duration::from_millis(250);
/// Answers from which on the percentile is used.
const ENOUGH: u32 = 100;
/// Bytes of a block that a member is tried with.
const TRIAL: u32 = 256 << 10;
/// A member is slow if its answers cost so many times as much as those of the fastest one.
const SLOWER: u32 = 8;

/// What is told how long a request takes whose answer still arrives.
type Late<'a> = &'a (dyn Fn(Duration) + Sync);

/// How a request ended, if it got no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The answer did not begin in time, or did not end, or the member was left alone meanwhile.
    Slow,
    /// The connection cannot be made, or broke.
    Lost(io::Error),
}

/// A member.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: String,
    fingerprint: Option<Fingerprint>,
    /// Shortest wait for an answer to begin.
    min_timeout: Duration,
    runtime: Handle,
    links: [Arc<tokio::sync::Mutex<Option<Arc<Link>>>>; LINKS],
    turn: AtomicUsize,
    latency: Latency,
    costs: Costs,
    health: Mutex<Health>,
    /// A block that it had.
    had: Mutex<Option<BlockKey>>,
}

impl Node {
    pub(crate) fn new(
        address: String,
        fingerprint: Option<Fingerprint>,
        min_timeout: Duration,
        runtime: Handle,
    ) -> Self {
        Self {
            address,
            fingerprint,
            min_timeout,
            runtime,
            links: Default::default(),
            turn: AtomicUsize::new(0),
            latency: Latency::default(),
            costs: Costs::default(),
            health: Mutex::new(Health::new(Instant::now())),
            had: Mutex::default(),
        }
    }

    /// Whether it is the same server as one of that address and certificate.
    pub(crate) fn is(&self, address: &str, fingerprint: Option<Fingerprint>) -> bool {
        self.address == address && self.fingerprint == fingerprint
    }

    /// Whether it is left alone now.
    pub(crate) fn is_suspended(&self) -> bool {
        self.health.lock().is_suspended()
    }

    /// Whether to ask it. One that was left alone for long enough is tried beside, so that nobody
    /// waits for it; its answer may not cost more than `most`.
    pub(crate) fn is_usable(self: &Arc<Self>, ring: &Arc<KeyRing>, most: impl Fn() -> Duration) -> bool {
        match self.health.lock().advice(Instant::now()) {
            Advice::Ask => return true,
            Advice::LeaveAlone => return false,
            Advice::Try => {}
        }
        let (this, ring, most) = (Arc::clone(self), Arc::clone(ring), most());
        drop(self.runtime.spawn(async move {
            let well = this.answers_well(&ring, most).await;
            this.health.lock().tried(well, Instant::now());
            tracing::info!(address = this.address, well, "a member of the cache group was tried");
        }));
        false
    }

    /// Asks for what it had when it was well.
    async fn answers_well(&self, ring: &Arc<KeyRing>, most: Duration) -> bool {
        let had = *self.had.lock();
        let (kind, key) = match had {
            Some(key) => (Kind::GetCached, key),
            None => (Kind::Has, BlockKey { id: 0, index: 0, size: 0 }),
        };
        let range = 0..key.size.min(TRIAL);
        let request = Request { id: 0, kind, version: 0, key, range: range.clone() };
        // The connection is made before, as it takes several trips.
        let Ok(Ok(link)) = timeout(UNKNOWN, self.link(ring, true)).await else { return false };
        let started = Instant::now();
        let Ok(answer) = self.ask_by(&link, request, None, UNKNOWN, None).await else { return false };
        !answer.damaged && cost(started.elapsed(), answer.payload.len() as u32) <= most
    }

    /// What its answers cost of late, if it is asked and there were enough.
    pub(crate) fn usual_cost(&self) -> Option<Duration> {
        if self.is_suspended() { None } else { self.costs.median() }
    }

    /// Leaves it alone if its answers cost much more than those of a fast one do.
    pub(crate) fn compare(&self, fastest: Duration) {
        if self.costs.median().is_some_and(|usual| usual > self.most(fastest)) {
            self.suspend("it is much slower than others");
        }
    }

    /// What its answers may cost beside those of the fastest member.
    pub(crate) fn most(&self, fastest: Duration) -> Duration {
        (fastest * SLOWER).max(2 * self.min_timeout)
    }

    /// How long an answer may take to begin.
    fn deadline(&self) -> Duration {
        self.latency
            .percentile_99(ENOUGH)
            // Without a limit, each freeze of the member would double the next wait.
            .map_or(UNKNOWN, |usual| (usual * 2).min(UNKNOWN))
            .max(self.min_timeout)
    }

    /// Asks it. `limit` is the longest time from the beginning of an answer to its end.
    pub(crate) async fn ask(
        &self,
        ring: &Arc<KeyRing>,
        request: Request,
        payload: Option<Bytes>,
        limit: Duration,
    ) -> Result<Answer, Unanswered> {
        self.note(request.key, self.try_ask(ring, request, payload, limit, None)).await
    }

    /// Asks it for a part of a block. `late` may leave the member alone; then the answer is not
    /// waited for.
    pub(crate) async fn read(
        &self,
        ring: &Arc<KeyRing>,
        request: Request,
        limit: Duration,
        late: Late<'_>,
    ) -> Result<Answer, Unanswered> {
        self.note(request.key, self.try_ask(ring, request, None, limit, Some(late))).await
    }

    /// Notes how a request ended.
    async fn note(
        &self,
        key: BlockKey,
        asked: impl Future<Output = Result<Answer, Unanswered>>,
    ) -> Result<Answer, Unanswered> {
        let begun = Instant::now();
        let asked = asked.await;
        match &asked {
            Ok(answer) => self.has_answered(answer, key),
            Err(Unanswered::Slow) => self.was_slow(begun),
            Err(Unanswered::Lost(error)) => {
                tracing::debug!(address = self.address, %error, "a member of the cache group does not answer");
                self.suspend("it does not answer");
            }
        }
        asked
    }

    async fn try_ask(
        &self,
        ring: &Arc<KeyRing>,
        request: Request,
        payload: Option<Bytes>,
        limit: Duration,
        late: Option<Late<'_>>,
    ) -> Result<Answer, Unanswered> {
        let link = timeout(self.deadline().max(CONNECTING), self.link(ring, false)).await;
        let link = link.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(Unanswered::Lost)?;
        self.ask_by(&link, request, payload, limit, late).await
    }

    async fn ask_by(
        &self,
        link: &Link,
        request: Request,
        payload: Option<Bytes>,
        limit: Duration,
        late: Option<Late<'_>>,
    ) -> Result<Answer, Unanswered> {
        let (started, arrived) = (Instant::now(), link.arrived());
        // A read has the object store to turn to. Others have nothing better to do than to wait.
        let is_read = matches!(request.kind, Kind::Get | Kind::GetCached);
        let wait = if is_read { self.deadline() } else { limit };
        let mut waiting = link.send(request, payload).await.map_err(Unanswered::Lost)?;
        let mut seen = arrived;
        let first = loop {
            if let Ok(first) = timeout(wait, &mut waiting.first).await {
                break first;
            }
            let (now, before) = (Instant::now(), std::mem::replace(&mut seen, link.arrived()));
            let elapsed = started.elapsed();
            let flows = seen > before && do_flow(seen - arrived, elapsed);
            let most = if flows { limit } else { UNKNOWN };
            // One that answered others meanwhile has much to do. If its clients went to the object
            // store, it would have to read less often, but the store more often.
            let is_excluded = late.is_some() && self.is_suspended();
            let is_busy =
                is_read && !is_excluded && (flows || self.health.lock().was_heard_within(SILENT, now));
            if !is_busy || elapsed >= most {
                // It counts as long as it was waited for, so that a member that became slower for
                // good is believed in the end.
                self.latency.observe(started.elapsed());
                return Err(Unanswered::Slow);
            }
        };
        self.latency.observe(started.elapsed());
        self.health.lock().heard(Instant::now());
        // A member that reads the object store first says so. That says nothing of its speed.
        let late = late.filter(|_| first != Ok(Status::Wait));
        let began = Instant::now();
        loop {
            let left = limit.saturating_sub(began.elapsed());
            match timeout(left.min(UNFINISHED), &mut waiting.last).await {
                Ok(Ok(Ok(answer))) => return Ok(answer),
                Ok(Ok(Err(error))) => return Err(Unanswered::Lost(error)),
                Ok(Err(_)) => return Err(Unanswered::Lost(io::ErrorKind::ConnectionAborted.into())),
                Err(_) if left <= UNFINISHED => return Err(Unanswered::Slow),
                Err(_) => {}
            }
            if let Some(late) = late {
                late(started.elapsed());
                if self.is_suspended() {
                    return Err(Unanswered::Slow);
                }
            }
        }
    }

    /// A connection, which is made if there is none. If nobody waits for it any more, it is still
    /// made, for those that come later. While the member is left alone, it is made for a
    /// `trial` alone.
    async fn link(&self, ring: &Arc<KeyRing>, trial: bool) -> io::Result<Arc<Link>> {
        let at = self.turn.fetch_add(1, Ordering::Relaxed) % LINKS;
        let mut place = Arc::clone(&self.links[at]).lock_owned().await;
        if let Some(link) = place.as_ref().filter(|link| !link.is_lost()) {
            return Ok(Arc::clone(link));
        }
        // Those that waited for the one that failed just now do not try again.
        if !trial && self.is_suspended() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let (address, fingerprint, ring) = (self.address.clone(), self.fingerprint, Arc::clone(ring));
        // The connection belongs to the runtime of the group, whoever asks first.
        let connect = self.runtime.spawn(async move {
            let link = Arc::new(Link::connect(&address, fingerprint, &ring).await?);
            *place = Some(Arc::clone(&link));
            Ok::<_, io::Error>(link)
        });
        let link = connect.await.unwrap_or_else(|gone| Err(io::Error::other(gone)))?;
        self.health.lock().heard(Instant::now());
        Ok(link)
    }

    fn has_answered(&self, answer: &Answer, key: BlockKey) {
        if answer.status == Status::Done && !answer.payload.is_empty() {
            *self.had.lock() = Some(key);
        }
        if self.health.lock().answered(answer.damaged) {
            self.suspend("its blocks are damaged");
        }
    }

    /// It did not answer what it was asked at `begun`.
    fn was_slow(&self, begun: Instant) {
        if self.health.lock().was_slow(begun, Instant::now()) {
            self.suspend("it is silent");
        }
    }

    /// Notes what an answer cost, or what was waited for one that did not come. Returns whether it
    /// is time to [compare](Self::compare). Nothing counts while the member is left
    /// alone: otherwise answers from before would exclude it again after a trial.
    pub(crate) fn note_cost(&self, took: Duration, bytes: u32) -> bool {
        !self.is_suspended() && self.costs.add(cost(took, bytes))
    }

    /// Whether an answer that took so long costs too much beside those of the fastest member.
    pub(crate) fn is_too_slow(&self, took: Duration, bytes: u32, fastest: Duration) -> bool {
        cost(took, bytes) > self.most(fastest)
    }

    /// Leaves it alone for a while. Its connections are closed.
    fn suspend(&self, reason: &str) {
        let Some(pause) = self.health.lock().leave_alone(Instant::now()) else { return };
        self.costs.clear();
        tracing::info!(address = self.address, ?pause, reason, "a member of the cache group is left alone");
        for link in &self.links {
            if let Ok(mut place) = link.try_lock() {
                place.take();
            }
        }
    }
}

/// Whether answers arrive fast, if so many bytes of them arrived within that time.
fn do_flow(bytes: u64, time: Duration) -> bool {
    bytes as f64 >= time.as_secs_f64() * FLOWING
}

#[cfg(test)]
mod tests;
