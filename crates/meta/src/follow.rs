//! Follows the changes of other clients, so that this client may use its cache.
//!
//! Every commit of a Sluice client has a number in its lane ([`Row::Writer`]). Its change
//! notification carries this number. The notification is a message, or, on engines without
//! messages, a record. So a follower notices if it missed a number, and then empties the cache.
//! What must stay true: the cache is used only if the numbers were compared a short time ago. So a
//! client that is partitioned from the database stops using the cache.

use std::{
    ops::RangeInclusive,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::wait;

use crate::{
    announce::slot,
    engine::{Engine, EngineError, Found, Notices, Read, Scan, Watch},
    meta::Meta,
    options::ClientCache,
    pages::scan_all,
    schema::{Change, Counter, Key, Notice, RING, Row, WriterId},
};

/// How long the cache may answer after the commit numbers were compared.
const TRUST: Duration = Duration::from_secs(5);
/// Between two comparisons where messages tell of changes.
const COMPARE: Duration = Duration::from_secs(2);
/// Between two comparisons where only they tell. Others' changes are to be seen within a second.
const POLL: Duration = Duration::from_millis(300);
/// How long a record is cached beside a JuiceFS client, which sends no notifications.
const BESIDE_JUICEFS: Duration = Duration::from_secs(1);
/// The same where the engine tells what such a client changed. It cannot tell two changes of the
/// same record apart that it makes at once, one of them ours.
const BESIDE_WATCHED: Duration = Duration::from_secs(2);
/// How long one wait for messages lasts.
const LISTEN: Duration = Duration::from_millis(200);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Records asked for at once.
const READS: usize = 256;

/// Told of what others changed, after it was forgotten here.
pub type OnChange = Box<dyn Fn(&[Change]) + Send + Sync>;

impl Meta {
    /// Whether [`Self::follow`] follows anybody.
    pub fn follows_others(&self) -> bool {
        self.options.client_cache.is_some() && self.env.record_cache.is_some()
    }

    /// Begins to follow other clients, if the volume was opened with a [`ClientCache`]: lookups and
    /// attributes are then answered from what is remembered. `notice` is called with each change,
    /// from a thread that no request needs.
    pub fn follow(self: &Arc<Self>, notice: OnChange) {
        let (Some(cache), Some(_)) = (self.options.client_cache, &self.env.record_cache) else { return };
        let meta = Arc::downgrade(self);
        let begun = wait::spawn("changes", move || follow(&meta, cache, &notice));
        if let Err(error) = begun {
            tracing::warn!(%error, "no thread to follow other clients with; the client cache stays off");
        }
    }
}

/// Follows as long as the volume is open, which this does not keep open.
fn follow(meta: &Weak<Meta>, cache: ClientCache, notice: &OnChange) {
    let Some(env) = meta.upgrade().map(|meta| meta.env.clone()) else { return };
    let Some(record_cache) = &env.record_cache else { return };
    let mut follower: Option<Follower> = None;
    let mut complained = false;
    while meta.strong_count() > 0 {
        let begun = follower.is_none();
        let heard = match &mut follower {
            Some(follower) => follower.next(),
            None => {
                match meta.upgrade().map(|meta| Follower::new(meta.engine.clone(), env.sid, cache.expire)) {
                    Some(Ok(new)) => {
                        follower = Some(new);
                        Ok(vec![Change::Any])
                    }
                    Some(Err(error)) => Err(error),
                    None => return,
                }
            }
        };
        match heard {
            Ok(changes) => {
                complained = false;
                if !changes.is_empty() {
                    record_cache.hear(&changes);
                    notice(&changes);
                }
                if let Some(age) = follower.as_mut().and_then(Follower::compared) {
                    record_cache.trust(TRUST, age);
                }
                if begun
                    && cache.preload > 0
                    && let Some(meta) = meta.upgrade()
                {
                    meta.preload(cache.preload);
                }
            }
            Err(error) => {
                record_cache.distrust();
                follower = None;
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(%error, "cannot follow other clients; the client cache is off until it can");
                }
                wait::sleep(PAUSE);
            }
        }
    }
}

/// The number of the last commit of each lane.
type Numbers = FxHashMap<(WriterId, u16), u64>;

/// What was heard of the others.
struct Follower {
    engine: Arc<dyn Engine>,
    notices: Notices,
    own: WriterId,
    watch: Box<dyn Watch>,
    /// The last commits heard of.
    heard: Numbers,
    /// Where a comparison raised that: messages of what lies between may be on their way, and say
    /// nothing new.
    raised: FxHashMap<(WriterId, u16), RangeInclusive<u64>>,
    /// The numbers that the engine held at the last comparison.
    stood: Numbers,
    /// The last session id that was given out by then.
    sessions: i64,
    next: Instant,
    expire: Duration,
    /// Set by a comparison: how old what is remembered may be.
    compared: Option<Duration>,
}

impl Follower {
    fn new(engine: Arc<dyn Engine>, own: WriterId, expire: Duration) -> Result<Self, EngineError> {
        // Listening begins first: what is committed between the two is heard of twice, and nothing
        // is lost by that.
        let watch = engine.watch()?;
        let notices = engine.limits().notices;
        let mut follower = Self {
            engine,
            notices,
            own,
            watch,
            heard: FxHashMap::default(),
            raised: FxHashMap::default(),
            stood: FxHashMap::default(),
            sessions: 0,
            next: wait::now(),
            expire,
            compared: None,
        };
        follower.heard = follower.compare()?.0;
        follower.stood.clone_from(&follower.heard);
        Ok(follower)
    }

    /// Whether the numbers were compared since this was asked last, and how old what is remembered
    /// may be.
    fn compared(&mut self) -> Option<Duration> {
        self.compared.take()
    }

    /// What others changed since the last call. Waits a moment for it.
    fn next(&mut self) -> Result<Vec<Change>, EngineError> {
        let wait = self.next.saturating_duration_since(wait::now());
        let mut changes = Vec::new();
        match self.notices {
            Notices::Push => {
                for notice in self.watch.next(wait.min(LISTEN))? {
                    self.take_in(notice, &mut changes);
                }
                if wait::now() >= self.next && self.missed()? {
                    changes.push(Change::Any);
                }
            }
            Notices::Hint => {
                let rang = !self.watch.next(wait.min(LISTEN))?.is_empty();
                if rang || wait::now() >= self.next {
                    self.look_up(&mut changes)?;
                }
                if rang && self.compared.is_some_and(|age| age < self.expire) {
                    // It may have been a JuiceFS client.
                    changes.push(Change::Any);
                }
            }
            Notices::Poll => {
                wait::sleep(wait.min(POLL));
                if wait::now() >= self.next {
                    self.look_up(&mut changes)?;
                }
            }
        }
        // What is told by name stays beside it: the kernel may remember what this client does not.
        if changes.contains(&Change::Any) {
            changes.retain(|change| *change != Change::Any);
            changes.push(Change::Any);
        }
        Ok(changes)
    }

    /// Takes in a message.
    fn take_in(&mut self, notice: Notice, changes: &mut Vec<Change>) {
        if notice.writer == self.own && self.own != 0 {
            return;
        }
        if notice.writer != 0 {
            let lane = (notice.writer, notice.lane);
            if self.raised.get(&lane).is_some_and(|known| known.contains(&notice.n)) {
                return;
            }
            self.raised.remove(&lane);
            let before = self.heard.entry(lane).or_default();
            // A number that is not the next says that some were missed, or that a failover lost
            // commits that were heard of and the numbers are given out again.
            if notice.n != *before + 1 {
                changes.push(Change::Any);
            }
            *before = notice.n;
        }
        changes.extend(notice.changes);
    }

    /// Whether commits happened, by the last comparison, that no message told of, or did not
    /// although one told of them.
    fn missed(&mut self) -> Result<bool, EngineError> {
        let (stand, gone) = self.compare()?;
        let heard = &mut self.heard;
        let behind = self.stood.iter().any(|(lane, n)| heard.get(lane).copied().unwrap_or(0) < *n);
        let fell = heard.iter().any(|(lane, n)| stand.get(lane).is_some_and(|now| now < n));
        if behind || fell {
            for (lane, n) in &stand {
                let before = heard.insert(*lane, *n).unwrap_or(0);
                if before < *n {
                    self.raised.insert(*lane, before + 1..=*n);
                } else if *n < before {
                    self.raised.remove(lane);
                }
            }
        }
        heard.retain(|lane, _| stand.contains_key(lane));
        self.raised.retain(|lane, _| stand.contains_key(lane));
        self.stood = stand;
        Ok(behind || fell || gone)
    }

    /// Reads what the commits since the last comparison changed.
    fn look_up(&mut self, changes: &mut Vec<Change>) -> Result<(), EngineError> {
        let (stand, gone) = self.compare()?;
        let mut wanted = Vec::new();
        let mut missed = gone;
        for ((writer, lane), n) in &stand {
            let before = self.heard.get(&(*writer, *lane)).copied().unwrap_or(0);
            // Where it fell, a failover lost commits.
            if *n < before || n - before >= RING {
                missed = true;
            } else {
                wanted.extend((before + 1..=*n).map(|n| (*writer, *lane, n)));
            }
        }
        self.heard = stand;
        for part in wanted.chunks(READS) {
            let get =
                |(writer, lane, n): &(WriterId, u16, u64)| Read::Get(Key::Changes(*writer, *lane, slot(*n)));
            let reads: Vec<Read> = part.iter().map(get).collect();
            for (found, (_, _, wanted)) in self.engine.read(&reads)?.into_iter().zip(part) {
                match found {
                    Found::Row(Some(Row::Changes(_, _, _, n, notice))) if n == *wanted => {
                        changes.extend(notice);
                    }
                    _ => missed = true,
                }
            }
        }
        if missed {
            changes.push(Change::Any);
        }
        Ok(())
    }

    /// The numbers of all lanes of others as they stand, and whether there were lanes that cannot
    /// be followed: of a session that ended, or that came and went.
    fn compare(&mut self) -> Result<(Numbers, bool), EngineError> {
        // Who registers after this is seen next time.
        let last = match self.engine.read(&[Read::Get(Key::Counter(Counter::NextSession))])?.pop() {
            Some(Found::Row(Some(Row::Counter(_, last)))) => last,
            _ => 0,
        };
        let rows = scan_all(self.engine.as_ref(), Scan::Writers)?;
        let lanes = rows.into_iter().filter_map(|row| match row {
            Row::Writer(writer, lane, n) if writer != self.own => Some(((writer, lane), n)),
            _ => None,
        });
        let stand: Numbers = lanes.collect();
        let writers: FxHashSet<WriterId> = stand.keys().map(|(writer, _)| *writer).collect();
        let others = scan_all(self.engine.as_ref(), Scan::Sessions)?
            .into_iter()
            .any(|row| matches!(row, Row::Session(sid, _) if sid != self.own && !writers.contains(&sid)));
        let known = self.heard.keys().chain(self.stood.keys());
        let came_and_went = (self.sessions + 1..=last)
            .any(|sid| sid as WriterId != self.own && !writers.contains(&(sid as WriterId)));
        let gone = known.into_iter().any(|lane| !stand.contains_key(lane)) || came_and_went;
        self.sessions = self.sessions.max(last);
        self.next = wait::now() + if self.notices == Notices::Poll { POLL } else { COMPARE };
        let watched = self.watch.set_silent_clients(others)?;
        self.compared = Some(match (others, watched) {
            (false, _) => self.expire,
            (true, false) => self.expire.min(BESIDE_JUICEFS),
            (true, true) => self.expire.min(BESIDE_WATCHED),
        });
        Ok((stand, gone))
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Ino;

    use super::*;
    use crate::{
        engine::{Commit, Step, Write},
        mem::MemEngine,
    };

    const OTHER: WriterId = 2;

    /// A store in which somebody else has committed five times, and who follows him. Comparisons
    /// are made when the test says so.
    fn following() -> (MemEngine, Follower) {
        let engine = MemEngine::new();
        stand_at(&engine, 5);
        let follower = Follower::new(Arc::new(engine.clone()), 1, Duration::from_hours(1)).expect("up");
        let mut follower = Follower { next: wait::now() + Duration::from_hours(1), ..follower };
        step(&engine, 6);
        assert_eq!(follower.next(), Ok(vec![Change::Node(Ino(6))]));
        (engine, follower)
    }

    fn commit(engine: &MemEngine, commit: &Commit) {
        engine.commit(commit).expect("up");
    }

    /// A failover sets the number of the last commit.
    fn stand_at(engine: &MemEngine, n: u64) {
        let writes = vec![Write::Put(Row::Writer(OTHER, 0, n))];
        commit(engine, &Commit { writes, ..Commit::default() });
    }

    /// The commit that follows `to - 1`.
    fn step(engine: &MemEngine, to: u64) {
        let step = Step { writer: OTHER, lane: 0, from: to - 1, to };
        let writes = vec![Write::Notify(Change::Node(Ino(to)))];
        commit(engine, &Commit { step: Some(step), writes, ..Commit::default() });
    }

    #[test]
    fn messages_whose_numbers_fell_back_are_heard() {
        for fallen in [5, 3] {
            let (engine, mut follower) = following();
            stand_at(&engine, fallen);
            step(&engine, fallen + 1);
            assert_eq!(follower.next(), Ok(vec![Change::Node(Ino(fallen + 1)), Change::Any]));
            step(&engine, fallen + 2);
            assert_eq!(follower.next(), Ok(vec![Change::Node(Ino(fallen + 2))]));
        }
    }

    #[test]
    fn messages_of_what_a_comparison_found_say_nothing_new() {
        let (engine, mut follower) = following();
        for to in 7..=9 {
            step(&engine, to);
        }
        // Two comparisons without a message in between: it lags.
        assert_eq!(follower.missed(), Ok(false));
        assert_eq!(follower.missed(), Ok(true));
        step(&engine, 10);
        let notice = (0..10).map(|_| follower.next().expect("up")).find(|notice| !notice.is_empty());
        assert_eq!(notice, Some(vec![Change::Node(Ino(10))]));
    }

    #[test]
    fn a_comparison_sees_that_numbers_fell_back() {
        let (engine, mut follower) = following();
        assert_eq!(follower.missed(), Ok(false));
        stand_at(&engine, 3);
        assert_eq!(follower.missed(), Ok(true));
        assert_eq!(follower.missed(), Ok(false));
        follower.next += Duration::from_hours(1);
        step(&engine, 4);
        assert_eq!(follower.next(), Ok(vec![Change::Node(Ino(4))]));

        let mut changes = Vec::new();
        assert_eq!(follower.look_up(&mut changes), Ok(()));
        assert_eq!(changes, []);
        stand_at(&engine, 2);
        assert_eq!(follower.look_up(&mut changes), Ok(()));
        assert_eq!(changes, [Change::Any]);
    }
}
