//! What the kernel may have cached while this mount follows other clients: dentries, and inodes
//! with their attributes.
//!
//! Changes of other clients are invalidated in the kernel by name. If a change notification says
//! only that a directory changed, or that anything may have changed, all names of this map that are
//! concerned are invalidated. What must stay true: each name that the kernel may cache for longer
//! than a second is here. If such a notification arrives while a request is under way, the kernel
//! must not cache the answer, because its name was not yet in this map when the names were
//! invalidated. A single name may be invalidated at any time, because the kernel waits until a
//! lookup of it has ended. The same holds for an inode that the kernel knows. An inode that the
//! kernel does not know yet is invalidated by its name.

use std::{
    collections::hash_map::Entry::Vacant,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::schema::Change;
use sluice_types::{Ino, Name, wait};

use crate::entry::Entry;

/// Shards, each with a lock of its own. All names of a directory are in one shard.
const SHARDS: usize = 16;
/// Most names and inodes in all: at about 100 bytes each, some 25 MiB.
const MAX_TRACKED: usize = 1 << 18;
/// Most directories of a shard whose last change is kept.
const MAX_CHANGED: usize = 4096;
/// How long the kernel may cache what is not here.
const UNTRACKED_TTL: Duration = Duration::from_secs(1);

/// Names and inodes that the kernel may have cached.
pub(super) struct KernelCache {
    /// The longest time for which it may cache anything; not set if this mount follows no other
    /// clients.
    longest: OnceLock<Duration>,
    changes: AtomicU64,
    /// The number of names and inodes in all shards.
    count: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    young: Generation,
    /// The kernel has dropped all of these once the young generation is old enough.
    old: Generation,
    since: Instant,
    changed: FxHashMap<Ino, Last>,
    /// Inodes that are not in `changed` may have changed up to this number.
    floor: u64,
}

/// The last changes of a directory or another inode.
#[derive(Clone, Copy)]
struct Last {
    /// Of its attributes.
    attr: u64,
    /// Of any of its names.
    name: u64,
    /// Of its names, when the announcement did not name them.
    names: u64,
}

#[derive(Default)]
struct Generation {
    names: FxHashMap<Ino, FxHashSet<Name>>,
    /// Inodes, each with the name with which it was last sent to the kernel.
    nodes: FxHashMap<Ino, Option<(Ino, Name)>>,
    count: usize,
}

impl Generation {
    fn drain(&mut self) -> impl Iterator<Item = Change> + use<> {
        let Self { names, nodes, .. } = std::mem::take(self);
        let names = names.into_iter().flat_map(|(dir, names)| entries(dir, names));
        names.chain(nodes.into_keys().map(Change::Node))
    }
}

fn entries(dir: Ino, names: FxHashSet<Name>) -> impl Iterator<Item = Change> {
    names.into_iter().map(move |name| Change::Entry(dir, name))
}

impl Shard {
    fn last(&self, ino: Ino) -> Last {
        let floor = Last { attr: self.floor, name: self.floor, names: self.floor };
        self.changed.get(&ino).copied().unwrap_or(floor)
    }

    fn change(&mut self, ino: Ino, now: u64, change: impl FnOnce(Last) -> Last) {
        if self.changed.len() >= MAX_CHANGED {
            self.changed.clear();
            self.floor = now;
        }
        let last = change(self.last(ino));
        self.changed.insert(ino, last);
    }

    /// Drops what the kernel has dropped, too. Returns how many items.
    fn age(&mut self, longest: Duration) -> usize {
        if wait::now().duration_since(self.since) <= longest {
            return 0;
        }
        self.since = wait::now();
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young)).count
    }
}

impl Default for KernelCache {
    fn default() -> Self {
        let shard = || Shard {
            young: Generation::default(),
            old: Generation::default(),
            since: wait::now(),
            changed: FxHashMap::default(),
            floor: 0,
        };
        Self {
            longest: OnceLock::new(),
            changes: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Mutex::new(shard())),
        }
    }
}

impl KernelCache {
    /// Sets that this mount follows other clients, and that its kernel caches nothing for longer
    /// than `longest`. Only the first call counts.
    pub(super) fn follow(&self, longest: Duration) {
        let _ = self.longest.set(longest);
    }

    fn longest(&self) -> Option<Duration> {
        self.longest.get().copied()
    }

    /// How many changes of other clients were announced. Take it before a request to the engine.
    pub(super) fn now(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Whether a change of the names of `dir` was announced since `asked`.
    pub(super) fn names_changed_since(&self, dir: Ino, asked: u64) -> bool {
        self.longest().is_some() && self.shard(dir).lock().last(dir).name > asked
    }

    /// Whether a change of the attributes of `ino` was announced since `asked`.
    pub(super) fn attr_changed_since(&self, ino: Ino, asked: u64) -> bool {
        self.longest().is_some() && self.shard(ino).lock().last(ino).attr > asked
    }

    /// How long the kernel may cache a name that was requested at `asked`: `ttl` at most.
    pub(super) fn name_ttl(&self, dir: Ino, name: &Name, asked: u64, ttl: Duration) -> Duration {
        let Some(longest) = self.longest() else { return ttl };
        let mut shard = self.shard(dir).lock();
        if shard.last(dir).names > asked {
            return Duration::ZERO;
        }
        if self.keep_name(&mut shard, longest, (dir, name), MAX_TRACKED) {
            ttl
        } else {
            ttl.min(UNTRACKED_TTL)
        }
    }

    /// A rename to this name, by the kernel, is about to happen. The kernel then caches the new
    /// name for no longer than the old one.
    pub(super) fn rename_to(&self, dir: Ino, name: &Name) {
        if let Some(longest) = self.longest() {
            self.keep_name(&mut self.shard(dir).lock(), longest, (dir, name), usize::MAX);
        }
    }

    /// Keeps a name if there are fewer than `most`. Returns whether it is kept.
    fn keep_name(
        &self,
        shard: &mut Shard,
        longest: Duration,
        (dir, name): (Ino, &Name),
        most: usize,
    ) -> bool {
        self.count.fetch_sub(shard.age(longest), Ordering::Relaxed);
        let known = shard.young.names.get(&dir).is_some_and(|names| names.contains(name));
        if known || !self.one_more(most) {
            return known;
        }
        shard.young.count += 1;
        shard.young.names.entry(dir).or_default().insert(name.clone())
    }

    /// Counts one more, if there are fewer than `most`. Returns whether it did.
    fn one_more(&self, most: usize) -> bool {
        let fits = self.count.load(Ordering::Relaxed) < most;
        if fits {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// How long the kernel may cache attributes that are about to be requested: `ttl` at most. The
    /// kernel itself discards the answer if the inode was invalidated meanwhile.
    pub(super) fn attr_ttl(&self, ino: Ino, ttl: Duration) -> Duration {
        let Some(longest) = self.longest() else { return ttl };
        let mut shard = self.shard(ino).lock();
        self.count.fetch_sub(shard.age(longest), Ordering::Relaxed);
        let Generation { nodes, count, .. } = &mut shard.young;
        if let Vacant(new) = nodes.entry(ino) {
            if !self.one_more(MAX_TRACKED) {
                return ttl.min(UNTRACKED_TTL);
            }
            new.insert(None);
            *count += 1;
        }
        ttl
    }

    /// The same for a name with an inode, which the kernel may not know yet.
    pub(super) fn entry(&self, dir: Ino, name: &[u8], asked: u64, entry: Entry) -> Entry {
        if self.longest().is_none() {
            return entry;
        }
        let name = Name::stored(name);
        let entry_ttl = self.name_ttl(dir, &name, asked, entry.entry_ttl);
        let mut attr_ttl = self.attr_ttl(entry.ino, entry.attr_ttl);
        let mut shard = self.shard(entry.ino).lock();
        if shard.last(entry.ino).attr > asked {
            attr_ttl = Duration::ZERO;
        }
        if let Some(by) = shard.young.nodes.get_mut(&entry.ino) {
            *by = Some((dir, name));
        }
        Entry { attr_ttl, entry_ttl, ..entry }
    }

    /// The name with which an inode was last sent to the kernel.
    pub(super) fn name_of(&self, ino: Ino) -> Option<Change> {
        let shard = self.shard(ino).lock();
        let by = shard.young.nodes.get(&ino).or_else(|| shard.old.nodes.get(&ino));
        by.cloned().flatten().map(|(dir, name)| Change::Entry(dir, name))
    }

    /// Another client changed something. Returns what must also be invalidated in the kernel.
    pub(super) fn changed_elsewhere(&self, change: &Change) -> Vec<Change> {
        if self.longest().is_none() {
            return Vec::new();
        }
        let now = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        match change {
            Change::Node(ino) => {
                self.shard(*ino).lock().change(*ino, now, |last| Last { attr: now, ..last });
                Vec::new()
            }
            Change::Entry(dir, _) => {
                self.shard(*dir).lock().change(*dir, now, |last| Last { name: now, ..last });
                Vec::new()
            }
            Change::Names(dir) => {
                let mut shard = self.shard(*dir).lock();
                shard.change(*dir, now, |last| Last { name: now, names: now, ..last });
                let Shard { young, old, .. } = &mut *shard;
                let taken = [young, old].map(|generation| {
                    let names = generation.names.remove(dir).unwrap_or_default();
                    generation.count -= names.len();
                    self.count.fetch_sub(names.len(), Ordering::Relaxed);
                    names
                });
                drop(shard);
                taken.into_iter().flat_map(|names| entries(*dir, names)).collect()
            }
            Change::Any => {
                let every = self.shards.iter().flat_map(|shard| {
                    let mut shard = shard.lock();
                    shard.changed.clear();
                    shard.floor = now;
                    self.count.fetch_sub(shard.young.count + shard.old.count, Ordering::Relaxed);
                    shard.young.drain().chain(shard.old.drain())
                });
                every.collect()
            }
            Change::Lock(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::{Attr, FileType, Time};

    use super::*;

    const TTL: Duration = Duration::from_hours(1);

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    fn following() -> KernelCache {
        let kernel = KernelCache::default();
        kernel.follow(TTL);
        kernel
    }

    fn ttl(kernel: &KernelCache, dir: u64, text: &str, asked: u64) -> Duration {
        kernel.name_ttl(Ino(dir), &name(text), asked, TTL)
    }

    #[test]
    fn the_names_of_a_directory_are_invalidated_once() {
        let kernel = following();
        for (dir, text) in [(1, "a"), (1, "b"), (17, "c")] {
            assert_eq!(ttl(&kernel, dir, text, kernel.now()), TTL);
        }
        let mut stale = kernel.changed_elsewhere(&Change::Names(Ino(1)));
        stale.sort_unstable_by_key(|change| format!("{change:?}"));
        assert_eq!(stale, [Change::Entry(Ino(1), name("a")), Change::Entry(Ino(1), name("b"))]);
        assert_eq!(kernel.changed_elsewhere(&Change::Names(Ino(1))), []);
        assert_eq!(kernel.attr_ttl(Ino(5), TTL), TTL);
        let stale = kernel.changed_elsewhere(&Change::Any);
        assert_eq!(stale, [Change::Entry(Ino(17), name("c")), Change::Node(Ino(5))]);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_cached() {
        for change in [Change::Names(Ino(1)), Change::Any] {
            let kernel = following();
            let asked = kernel.now();
            assert!(!kernel.names_changed_since(Ino(1), asked));
            kernel.changed_elsewhere(&change);
            assert_eq!(ttl(&kernel, 1, "a", asked), Duration::ZERO, "{change:?}");
            assert!(kernel.names_changed_since(Ino(1), asked), "{change:?}");
            assert_eq!(ttl(&kernel, 1, "a", kernel.now()), TTL, "{change:?}");
            assert_eq!(ttl(&kernel, 17, "a", asked).is_zero(), change == Change::Any, "{change:?}");
        }
        let kernel = following();
        let asked = kernel.now();
        kernel.changed_elsewhere(&Change::Entry(Ino(1), name("a")));
        assert!(kernel.names_changed_since(Ino(1), asked), "of a page it may be one of many");
        assert_eq!(ttl(&kernel, 1, "a", asked), TTL, "the kernel is notified of it");
        for dir in 0..2 * (SHARDS * MAX_CHANGED) as u64 {
            kernel.changed_elsewhere(&Change::Names(Ino(dir)));
        }
        assert_eq!(ttl(&kernel, 0, "a", asked), Duration::ZERO, "forgotten changes count as changes");
    }

    #[test]
    fn attributes_from_before_a_change_are_not_cached() {
        let kernel = following();
        let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time::default());
        let answer = Entry { ino: Ino(5), attr, attr_ttl: TTL, entry_ttl: TTL };
        let asked = kernel.now();
        assert_eq!(kernel.entry(Ino(1), b"a", asked, answer), answer);
        assert_eq!(kernel.changed_elsewhere(&Change::Node(Ino(5))), []);
        assert_eq!(kernel.name_of(Ino(5)), Some(Change::Entry(Ino(1), name("a"))));
        let late = kernel.entry(Ino(1), b"b", asked, answer);
        assert_eq!((late.attr_ttl, late.entry_ttl), (Duration::ZERO, TTL));
        assert_eq!(kernel.entry(Ino(1), b"b", kernel.now(), answer), answer);
        assert_eq!(kernel.name_of(Ino(5)), Some(Change::Entry(Ino(1), name("b"))));
        assert_eq!(kernel.name_of(Ino(6)), None);
    }

    #[test]
    fn what_does_not_fit_is_cached_for_a_moment() {
        let kernel = following();
        (0..MAX_TRACKED).for_each(|n| assert_eq!(ttl(&kernel, 1, &n.to_string(), 0), TTL));
        assert_eq!(ttl(&kernel, 2, "more", 0), UNTRACKED_TTL);
        assert_eq!(kernel.attr_ttl(Ino(2), TTL), UNTRACKED_TTL);
        assert_eq!(ttl(&kernel, 1, "0", 0), TTL, "it is there already");
        kernel.rename_to(Ino(2), &name("moved"));
        assert_eq!(kernel.changed_elsewhere(&Change::Names(Ino(2))), [Change::Entry(Ino(2), name("moved"))]);
        assert_eq!(kernel.changed_elsewhere(&Change::Names(Ino(1))).len(), MAX_TRACKED);
        assert_eq!(ttl(&kernel, 2, "more", kernel.now()), TTL, "there is room again");
        kernel.changed_elsewhere(&Change::Any);
        assert_eq!(kernel.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_the_kernel_has_forgotten_is_not_kept() {
        let kernel = KernelCache::default();
        kernel.follow(Duration::ZERO);
        (0..2 * MAX_TRACKED as u64).for_each(|n| {
            kernel.attr_ttl(Ino(1 + 16 * n), TTL);
        });
        let shard = kernel.shards[1].lock();
        assert!(shard.young.count + shard.old.count < MAX_TRACKED / 2);
        assert_eq!(shard.young.count + shard.old.count, kernel.count.load(Ordering::Relaxed));
    }

    #[test]
    fn a_mount_that_follows_nobody_keeps_nothing() {
        let kernel = KernelCache::default();
        assert_eq!(ttl(&kernel, 1, "a", 0), TTL);
        assert_eq!(kernel.changed_elsewhere(&Change::Any), []);
    }
}
