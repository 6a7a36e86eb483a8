//! The record cache: the last known nodes, entries, extended attributes and sessions.
//!
//! Changes start from cached records, so they need no read before the commit. A record that an
//! operation takes from here becomes an expectation of its commit. If the record is stale, the
//! commit conflicts, and the operation runs again with the records of the engine. So a stale record
//! costs one round trip, but causes no wrong result. The times and links of a directory are an
//! exception: the commit does not compare them, and the answer contains them. So an operation never
//! uses a record that is older than the attributes that the kernel may have cached.
//!
//! Lookups and getattr use it if the mount enabled that, and only while a listener follows the
//! changes of other clients ([`RecordCache::trust`]).
//!
//! What must stay true: the result of a read never replaces a record that became known after the
//! read began. So each read takes the [`RecordCache::moment`] first.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Ino, Time, wait};

use crate::{
    engine::{Found, Hold, Read, Write},
    schema::{Change, Key, Row},
    want::Want,
};

/// Shards, each with a lock of its own. The entries of a directory are in one shard.
const SHARDS: usize = 16;
/// Fewest records of one generation of a shard. At about 200 bytes each, all shards take some 13
/// MiB at most.
const GENERATION: usize = 2048;
/// Longest value of an extended attribute that is cached, bytes.
const SMALL_VALUE: usize = 64;
/// Most reads of one trip, or writes of one commit, that are all cached. Operations on thousands of
/// records seldom need them again, and would evict what others use. Larger trips and commits only
/// update records that are cached already.
const FEW: usize = 512;
/// How long changes use a record after the engine returned it.
const FRESH: Duration = Duration::from_secs(1);

/// The last known records.
pub(crate) struct RecordCache {
    shards: [Mutex<Shard>; SHARDS],
    /// Most records of one generation of a shard.
    generation: usize,
    /// Changes that became known here.
    changes: AtomicU64,
    began: Instant,
    /// Until when reads may use the cache, in milliseconds since the beginning.
    trusted: AtomicU64,
    /// How old a record may be then, in milliseconds.
    age: AtomicU64,
}

/// Two generations. When the young one is full it becomes the old one, and the old one is dropped.
#[derive(Default)]
struct Shard {
    young: FxHashMap<Key, Seen>,
    old: FxHashMap<Key, Seen>,
    /// The last known change of any of its records.
    changed: u64,
    /// The last of these that was not made here, or that left no entry by which a late answer is
    /// detected.
    heard: u64,
}

/// A cached record.
#[derive(Clone)]
struct Seen {
    at: Instant,
    /// The last change of it by this client, 0 if it is as the engine returned it.
    changed: u64,
    /// Whether the record is known. If not, only that it changed.
    sure: bool,
    /// `None` if there was none.
    row: Option<Row>,
}

/// When a commit was sent. Others may have replaced the same records before its answer came.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    moment: u64,
    at: Instant,
}

/// Whether that is to be cached. The absence of a node or session is not, because nobody announces
/// that one was made.
fn kept(key: &Key, row: Option<&Row>) -> bool {
    match (key, row) {
        (Key::Node(_) | Key::Session(_), row) => row.is_some(),
        (Key::Xattr(..), Some(Row::Xattr(_, _, value))) => value.len() <= SMALL_VALUE,
        (Key::Entry(..) | Key::Xattr(..), _) => true,
        _ => false,
    }
}

impl Shard {
    fn get(&mut self, key: &Key, generation: usize) -> Option<&mut Seen> {
        if !self.young.contains_key(key) {
            let seen = self.old.remove(key)?;
            self.put(key.clone(), seen, generation);
        }
        self.young.get_mut(key)
    }

    fn put(&mut self, key: Key, seen: Seen, generation: usize) {
        if self.young.len() >= generation && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, seen);
    }

    fn has(&self, key: &Key) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    fn remove(&mut self, key: &Key) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

impl RecordCache {
    /// A cache for at least `records`.
    pub(crate) fn new(records: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            generation: records.div_ceil(SHARDS).max(GENERATION),
            changes: AtomicU64::new(0),
            began: wait::now(),
            trusted: AtomicU64::new(0),
            age: AtomicU64::new(0),
        }
    }

    /// Reads may use records that are not older than `age`, for `span` from now on.
    pub(crate) fn trust(&self, span: Duration, age: Duration) {
        self.age.store(age.as_millis() as u64, Ordering::Relaxed);
        self.trusted.store((self.lasts() + span).as_millis() as u64, Ordering::Relaxed);
    }

    /// Reads may not use the cache any more.
    pub(crate) fn distrust(&self) {
        self.trusted.store(0, Ordering::Relaxed);
    }

    /// How long the cache exists.
    fn lasts(&self) -> Duration {
        wait::now().saturating_duration_since(self.began)
    }

    /// Take it before a read of the engine.
    pub(crate) fn moment(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Take it before a commit.
    pub(crate) fn sent(&self) -> Sent {
        Sent { moment: self.moment(), at: wait::now() }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        let ino = match key {
            Key::Node(ino) | Key::Entry(ino, _) | Key::Xattr(ino, _) => ino.0,
            _ => 0,
        };
        &self.shards[(ino as usize) % SHARDS]
    }

    fn get(&self, key: &Key, age: Duration) -> Option<Seen> {
        let mut shard = self.shard(key).lock();
        shard
            .get(key, self.generation)
            .filter(|seen| seen.sure && wait::now().saturating_duration_since(seen.at) < age)
            .cloned()
    }

    /// Caches what the engine returned to a read that began at `moment`, and is known since `at`.
    fn learn_one(&self, key: Key, row: Option<Row>, moment: u64, at: Instant) {
        if !kept(&key, row.as_ref()) {
            return;
        }
        let mut shard = self.shard(&key).lock();
        if shard.changed <= moment {
            shard.put(key, Seen { at, changed: 0, sure: true, row }, self.generation);
        }
    }

    /// A change of that record became known.
    fn changed<T>(&self, key: &Key, with: impl FnOnce(&mut Shard, u64) -> T) -> T {
        let now = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let mut shard = self.shard(key).lock();
        shard.changed = shard.changed.max(now);
        with(&mut shard, now)
    }

    /// Removes records that turned out to be stale.
    pub(crate) fn forget(&self, keys: &[Key]) {
        for key in keys {
            self.changed(key, |shard, now| {
                shard.heard = shard.heard.max(now);
                shard.remove(key);
            });
        }
    }

    /// Caches the answers of a trip that began at `moment`.
    pub(crate) fn learn(&self, reads: &[Read], found: &[Found], moment: u64) {
        if reads.len() > FEW {
            return;
        }
        let at = wait::now();
        for (read, found) in reads.iter().zip(found) {
            match (read, found) {
                (Read::Get(key), Found::Row(row)) => self.learn_one(key.clone(), row.clone(), moment, at),
                (Read::Follow(dir, name), Found::Rows(rows)) => {
                    for row in rows {
                        self.learn_one(row.key(), Some(row.clone()), moment, at);
                    }
                    if rows.is_empty() {
                        self.learn_one(Key::Entry(*dir, name.clone()), None, moment, at);
                    }
                }
                _ => {}
            }
        }
    }

    /// Caches a page of entries and their nodes that was requested at `moment`.
    pub(crate) fn learn_rows(&self, rows: Vec<Row>, moment: u64) {
        let at = wait::now();
        for row in rows {
            self.learn_one(row.key(), Some(row), moment, at);
        }
    }

    /// Caches what a commit of this client changed. If others changed anything since it was sent,
    /// or if another commit of this client changed the same records, it is unknown which change was
    /// last.
    pub(crate) fn committed(&self, writes: &[Write], sent: Sent) {
        let few = writes.len() <= FEW;
        for write in writes {
            match write {
                Write::Insert(row) | Write::Put(row) => self.replaced(&row.key(), Some(row), few, sent),
                Write::Delete(key) | Write::Discard(key) => self.replaced(key, None, few, sent),
                Write::Bump { ino, nlink, time } => {
                    self.bumped(&Key::Node(*ino), (*nlink, *time), few, sent);
                }
                _ => {}
            }
        }
    }

    /// A commit of this client replaced a record. It is cached if `keep` says so, or if it was
    /// before.
    fn replaced(&self, key: &Key, row: Option<&Row>, keep: bool, sent: Sent) {
        if !matches!(key, Key::Node(_) | Key::Entry(..) | Key::Xattr(..)) {
            return;
        }
        self.changed(key, |shard, now| {
            if !keep && !shard.has(key) {
                shard.heard = shard.heard.max(now);
                return;
            }
            let before = |seen: &mut Seen| seen.changed <= sent.moment && seen.at < sent.at;
            let last = shard.get(key, self.generation).is_none_or(before);
            let sure = last && shard.heard <= sent.moment && kept(key, row);
            let row = row.filter(|_| sure).cloned();
            shard.put(key.clone(), Seen { at: wait::now(), changed: now, sure, row }, self.generation);
        });
    }

    /// A commit of this client added to a node: links, and times that only grow. Several may do so
    /// in any order.
    fn bumped(&self, key: &Key, (nlink, time): (i32, Option<Time>), keep: bool, sent: Sent) {
        self.changed(key, |shard, now| {
            let heard = shard.heard > sent.moment;
            match shard.get(key, self.generation) {
                // What was cached since may contain it already.
                Some(seen) if heard || seen.at >= sent.at => (seen.changed, seen.sure) = (now, false),
                Some(seen) => {
                    seen.changed = now;
                    if let Some(Row::Node(_, attr)) = &mut seen.row {
                        attr.nlink = attr.nlink.saturating_add_signed(nlink);
                        if let Some(time) = time {
                            attr.mtime = attr.mtime.max(time);
                            attr.ctime = attr.ctime.max(time);
                        }
                    }
                }
                None if keep => {
                    let seen = Seen { at: wait::now(), changed: now, sure: false, row: None };
                    shard.put(key.clone(), seen, self.generation);
                }
                None => shard.heard = shard.heard.max(now),
            }
        });
    }

    /// Removes what another client changed.
    pub(crate) fn hear(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Node(ino) => self.forget(&[Key::Node(*ino)]),
                Change::Entry(dir, name) => self.forget(&[Key::Entry(*dir, name.clone())]),
                Change::Names(dir) => {
                    let shard = &self.shards[(dir.0 as usize) % SHARDS];
                    self.keep_where(shard, |key| !matches!(key, Key::Entry(of, _) if of == dir));
                }
                Change::Any => self.shards.iter().for_each(|shard| self.keep_where(shard, |_| false)),
                Change::Lock(_) => {}
            }
        }
    }

    fn keep_where(&self, shard: &Mutex<Shard>, keeps: impl Fn(&Key) -> bool) {
        let now = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let mut shard = shard.lock();
        shard.changed = shard.changed.max(now);
        shard.heard = shard.heard.max(now);
        shard.young.retain(|key, _| keeps(key));
        shard.old.retain(|key, _| keeps(key));
    }

    /// Answers for an operation that only reads, if all of `wants` are cached and may be used.
    pub(crate) fn believed(&self, wants: &[Want]) -> Option<Vec<Found>> {
        if self.lasts().as_millis() as u64 >= self.trusted.load(Ordering::Relaxed) {
            return None;
        }
        let age = Duration::from_millis(self.age.load(Ordering::Relaxed));
        wants.iter().map(|want| self.believed_one(want, age)).collect()
    }

    fn believed_one(&self, want: &Want, age: Duration) -> Option<Found> {
        match (&want.read, want.hold) {
            (Read::Get(key @ Key::Node(_)), Hold::None) => Some(Found::Row(self.get(key, age)?.row)),
            (Read::Follow(dir, name), Hold::None) => self.follow(*dir, name, age),
            _ => None,
        }
    }

    /// Answers for an operation whose commit checks them, if all of `wants` are cached.
    pub(crate) fn answer(&self, wants: &[Want]) -> Option<Vec<Found>> {
        wants.iter().map(|want| self.answer_one(want)).collect()
    }

    fn answer_one(&self, Want { read, hold }: &Want) -> Option<Found> {
        match read {
            Read::Get(key @ (Key::Node(_) | Key::Session(_))) if *hold > Hold::None => {
                self.get(key, FRESH)?.row.map(|row| Found::Row(Some(row)))
            }
            Read::Get(key @ Key::Xattr(..)) if *hold > Hold::None => {
                self.get(key, FRESH).map(|seen| Found::Row(seen.row))
            }
            // An operation that asks for an entry without holding it is about to insert it: the
            // commit sees whether it may.
            Read::Get(key @ Key::Entry(..)) if *hold == Hold::None => {
                Some(Found::Row(self.get(key, FRESH).and_then(|seen| seen.row)))
            }
            Read::Follow(dir, name) if *hold > Hold::None => self.follow(*dir, name, FRESH),
            _ => None,
        }
    }

    fn follow(&self, dir: Ino, name: &sluice_types::Name, age: Duration) -> Option<Found> {
        let entry = self.get(&Key::Entry(dir, name.clone()), age)?.row;
        let Some(Row::Entry(_, _, to)) = &entry else { return Some(Found::Rows(Vec::new())) };
        let node = self.get(&Key::Node(to.ino), age)?.row?;
        Some(Found::Rows(entry.into_iter().chain([node]).collect()))
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::{Attr, FileType, Name};

    use super::*;
    use crate::schema::Entry;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    fn node(ino: u64, mode: u16) -> Row {
        Row::Node(Ino(ino), Attr::new(FileType::File, mode, 0, 0, Ino::ROOT, Time::default()))
    }

    fn entry(dir: u64, text: &str, ino: u64) -> Row {
        Row::Entry(Ino(dir), name(text), Entry { kind: FileType::File, ino: Ino(ino) })
    }

    fn look(dir: u64, text: &str) -> [Want; 1] {
        [Want::follow(Ino(dir), name(text), Hold::None)]
    }

    fn trusting() -> RecordCache {
        let record_cache = RecordCache::new(0);
        record_cache.trust(Duration::from_hours(1), Duration::from_hours(1));
        record_cache
    }

    #[test]
    fn answers_from_before_a_change_are_not_kept() {
        let record_cache = trusting();
        let moment = record_cache.moment();
        record_cache.hear(&[Change::Node(Ino(5))]);
        record_cache.learn(
            &[look(1, "a")[0].read.clone()],
            &[Found::Rows(vec![entry(1, "a", 5), node(5, 0o600)])],
            moment,
        );
        assert_eq!(record_cache.believed(&look(1, "a")), None, "the node may be another by now");
        record_cache.learn(
            &[look(1, "a")[0].read.clone()],
            &[Found::Rows(vec![entry(1, "a", 5), node(5, 0o644)])],
            record_cache.moment(),
        );
        assert_eq!(
            record_cache.believed(&look(1, "a")),
            Some(vec![Found::Rows(vec![entry(1, "a", 5), node(5, 0o644)])])
        );
        let moment = record_cache.moment();
        record_cache.committed(&[Write::Put(node(5, 0o400))], record_cache.sent());
        record_cache.learn(
            &[look(1, "a")[0].read.clone()],
            &[Found::Rows(vec![entry(1, "a", 5), node(5, 0o644)])],
            moment,
        );
        assert_eq!(
            record_cache.believed(&look(1, "a")),
            Some(vec![Found::Rows(vec![entry(1, "a", 5), node(5, 0o400)])])
        );
    }

    #[test]
    fn a_commit_that_is_answered_late_hides_nothing_that_others_did_since() {
        let record_cache = trusting();
        let known = |ino| record_cache.believed(&[Want::node(Ino(ino), Hold::None)]);
        let put = |ino| [Write::Put(node(ino, 0o400))];
        let sent = record_cache.sent();
        record_cache.committed(&put(6), record_cache.sent());
        record_cache.committed(&put(5), sent);
        assert!(known(5).is_some(), "what this client does elsewhere is no reason for doubt");
        let sent = record_cache.sent();
        record_cache.hear(&[Change::Node(Ino(5))]);
        record_cache.learn_rows(vec![node(5, 0o644)], record_cache.moment());
        record_cache.committed(&put(5), sent);
        assert_eq!(known(5), None, "it may be either");
        let bump = [Write::Bump { ino: Ino(5), nlink: 1, time: None }];
        let sent = record_cache.sent();
        record_cache.learn_rows(vec![node(5, 0o644)], record_cache.moment());
        record_cache.committed(&bump, sent);
        assert_eq!(known(5), None, "the answer may count the link already");
        record_cache.learn_rows(vec![node(5, 0o644)], record_cache.moment());
        record_cache.committed(&bump, record_cache.sent());
        assert!(known(5).is_some());
    }

    #[test]
    fn commits_whose_answers_come_in_another_order_leave_nothing_stale() {
        let known = |record_cache: &RecordCache| record_cache.believed(&[Want::node(Ino(5), Hold::None)]);
        let put = Write::Put(node(5, 0o400));
        let bump = Write::Bump { ino: Ino(5), nlink: 1, time: None };
        for remembered in [false, true] {
            for later in [bump.clone(), Write::Delete(Key::Node(Ino(5))), Write::Put(node(5, 0o644))] {
                let record_cache = trusting();
                if remembered {
                    record_cache.learn_rows(vec![node(5, 0o600)], record_cache.moment());
                }
                let (first, second) = (record_cache.sent(), record_cache.sent());
                record_cache.committed(std::slice::from_ref(&later), second);
                record_cache.committed(std::slice::from_ref(&put), first);
                assert_eq!(known(&record_cache), None, "{later:?} may have been last: {remembered}");
                record_cache.learn_rows(vec![node(5, 0o777)], record_cache.moment());
                assert!(known(&record_cache).is_some(), "the engine says how it is");
            }
        }
        // Many at once leave no mark each.
        let record_cache = trusting();
        let (first, second) = (record_cache.sent(), record_cache.sent());
        let many: Vec<Write> = (0..=FEW as u64).map(|ino| Write::Delete(Key::Node(Ino(ino)))).collect();
        record_cache.committed(&many, second);
        record_cache.committed(std::slice::from_ref(&put), first);
        assert_eq!(known(&record_cache), None);
        // What adds up does so in any order.
        let record_cache = trusting();
        record_cache.learn_rows(vec![node(5, 0o600)], record_cache.moment());
        let (first, second) = (record_cache.sent(), record_cache.sent());
        record_cache.committed(std::slice::from_ref(&bump), second);
        record_cache.committed(std::slice::from_ref(&bump), first);
        let Some(found) = known(&record_cache) else { panic!("nothing is unknown of it") };
        assert!(matches!(&found[..], [Found::Row(Some(Row::Node(_, attr)))] if attr.nlink == 3), "{found:?}");
    }

    #[test]
    fn what_others_change_goes_alone() {
        let record_cache = trusting();
        let known = || {
            record_cache.learn_rows(
                vec![entry(1, "a", 5), node(5, 0), entry(1, "b", 6), node(6, 0)],
                record_cache.moment(),
            );
        };
        known();
        record_cache.hear(&[Change::Entry(Ino(1), name("a"))]);
        assert_eq!(record_cache.believed(&look(1, "a")), None);
        assert!(record_cache.believed(&look(1, "b")).is_some());
        known();
        record_cache.hear(&[Change::Names(Ino(1))]);
        assert_eq!(record_cache.believed(&look(1, "a")), None);
        assert_eq!(record_cache.believed(&look(1, "b")), None);
        assert!(record_cache.believed(&[Want::node(Ino(5), Hold::None)]).is_some());
        known();
        record_cache.hear(&[Change::Any]);
        assert_eq!(record_cache.believed(&look(1, "b")), None);
        assert_eq!(record_cache.believed(&[Want::node(Ino(5), Hold::None)]), None);
    }

    #[test]
    fn nothing_is_believed_without_trust() {
        let record_cache = trusting();
        record_cache.learn_rows(vec![entry(1, "a", 5), node(5, 0)], record_cache.moment());
        record_cache.learn(
            &[look(1, "none")[0].read.clone()],
            &[Found::Rows(Vec::new())],
            record_cache.moment(),
        );
        assert_eq!(record_cache.believed(&look(1, "none")), Some(vec![Found::Rows(Vec::new())]));
        record_cache.trust(Duration::from_hours(1), Duration::ZERO);
        assert_eq!(record_cache.believed(&look(1, "a")), None, "too old");
        record_cache.trust(Duration::from_hours(1), Duration::from_hours(1));
        assert!(record_cache.believed(&look(1, "a")).is_some());
        record_cache.distrust();
        assert_eq!(record_cache.believed(&look(1, "a")), None);
    }

    #[test]
    fn the_old_go_first_and_what_is_used_stays() {
        let record_cache = trusting();
        let most = 16 * 2 * GENERATION as u64;
        record_cache.learn_rows(vec![node(0, 0)], record_cache.moment());
        for ino in 1..=2 * most {
            record_cache.learn_rows(vec![node(ino, 0)], record_cache.moment());
            assert!(record_cache.believed(&[Want::node(Ino(0), Hold::None)]).is_some(), "{ino}");
        }
        let kept = (0..=2 * most)
            .filter(|ino| record_cache.believed(&[Want::node(Ino(*ino), Hold::None)]).is_some());
        assert!((most / 4..=most).contains(&(kept.count() as u64)));
    }
}
