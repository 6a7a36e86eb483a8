//! Many threads in several clients work under nested quotas, and move trees across them: usage is
//! exact afterwards, and no limit was passed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use sluice_meta::{
    Interrupt, Meta, Options,
    ops::{
        link::Link,
        quota::SetLimits,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        setattr::{Changes, SetAttr},
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
    },
    quota::Counting,
    schema::QuotaKey,
    tree::CloneTree,
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Rng, Slice};

use super::{
    clients::{Factory, NOW, at, create, options, seeds},
    state::State,
};

/// The first number of a node here; clones get those before.
const FIRST: u64 = 10_010;
/// Directories that are there from the beginning, and where: three trees, with others in them. All
/// may move.
const DIRS: [(u64, u64); 6] = [
    (FIRST, 1),
    (FIRST + 1, 1),
    (FIRST + 2, 1),
    (FIRST + 3, FIRST),
    (FIRST + 4, FIRST + 1),
    (FIRST + 5, FIRST + 3),
];
/// Those with a quota.
const LIMITED: [u64; 4] = [FIRST, FIRST + 1, FIRST + 3, FIRST + 4];
/// Inodes that each of them may hold.
const INODES: i64 = 40;
/// Inodes that the whole volume may hold: clones of clones would double it again and again.
const ALL: i64 = 150;
/// Most rounds of a client: what it removes stays in the trash, which no quota limits, and the
/// reference engine looks at all records for a list.
const MAX_ROUNDS: u64 = 12;
/// Users and groups.
const OWNERS: u64 = 3;

/// One step of a client.
struct Step<'a> {
    meta: &'a Meta,
    rng: Rng,
    /// Number of the next node.
    next: u64,
}

impl Step<'_> {
    fn dir(&mut self) -> u64 {
        if self.rng.below(5) == 0 { 1 } else { FIRST + self.rng.below(DIRS.len() as u64) }
    }

    fn name(&mut self) -> String {
        // The first directories move among each other, too.
        match self.rng.below(4) {
            0 => format!("d{}", FIRST + self.rng.below(DIRS.len() as u64)),
            _ => format!("n{}", self.rng.below(8)),
        }
    }

    fn run(&mut self) -> FsResult<()> {
        let never = Interrupt::never();
        let caller = Caller::client();
        let meta = self.meta;
        self.next += 1;
        let ino = self.next;
        let (from, to) = (self.dir(), self.dir());
        let (old, new) = (self.name(), self.name());
        let recent = Ino(ino.saturating_sub(self.rng.below(40)));
        match self.rng.below(20) {
            0..5 => {
                let kind = if self.rng.below(3) == 0 { FileType::Dir } else { FileType::File };
                meta.run(create(from, &old, ino, kind), &never).map(drop)
            }
            5 | 6 => meta.run(Link { ino: recent, at: at(to, &new), caller }, &never).map(drop),
            7 => meta.run(Unlink { at: at(from, &old), skip_trash: false, caller }, &never).map(drop),
            8 => {
                let rmdir = Rmdir { at: at(from, &old), hint: None, skip_trash: false, caller };
                meta.run(rmdir, &never).map(drop)
            }
            9 | 10 => {
                let pos = self.rng.below(20_000) as u32;
                let slices = vec![Slice::whole(pos, ino, 1 + self.rng.below(10_000) as u32)];
                meta.run(Write { ino: recent, index: 0, slices, mtime: NOW }, &never).map(drop)
            }
            11 => {
                let length = self.rng.below(30_000);
                let op = Truncate { ino: recent, length, opened: true, kill_suid: false, caller };
                meta.run(op, &never).map(drop)
            }
            12 | 13 => {
                let (uid, gid) = (self.rng.below(OWNERS) as u32, self.rng.below(OWNERS) as u32);
                // New nodes in a directory with this mode belong to its group.
                let mode = (self.rng.below(2) == 0).then_some(0o2775);
                let changes = Changes { uid: Some(uid), gid: Some(gid), mode, ..Changes::default() };
                meta.run(
                    SetAttr { ino: Ino(from), changes: changes.clone(), caller: caller.clone() },
                    &never,
                )?;
                let changes = Changes { mode: None, ..changes };
                meta.run(SetAttr { ino: recent, changes, caller }, &never).map(drop)
            }
            14 if self.rng.below(3) == 0 => {
                let clone =
                    CloneTree { source: Ino(from), at: at(to, &new), preserve: true, umask: 0, caller };
                meta.clone_tree(&clone, &never, &|_| {}).map(drop)
            }
            14 | 15 => meta.remove_tree(&at(from, &old), false, &caller, &never, &|_| {}),
            other => {
                let mode = if other == 19 { RenameMode::Exchange } else { RenameMode::Replace };
                meta.rename(&Rename { from: at(from, &old), to: at(to, &new), mode, caller }, &never)
                    .map(drop)
            }
        }
    }

    fn steps(mut self, count: u64, done: &AtomicU64) {
        for _ in 0..count {
            match self.run() {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(FsError::Io(context)) => panic!("{context}"),
                Err(_) => {}
            }
        }
    }
}

fn counting(strict: bool, interrupt: &Interrupt) -> Counting<'_> {
    Counting { strict, interrupt, progress: &|_| {} }
}

fn limit(meta: &Meta, key: QuotaKey, inodes: i64) -> FsResult<bool> {
    let never = Interrupt::never();
    let limits = SetLimits { key, max_space: Some(0), max_inodes: Some(inodes) };
    Ok(meta.set_quota(limits, &counting(false, &never), &|_| {})?.settled)
}

/// What is on record is what is there, however it is counted.
fn check(meta: &Meta, state: &State, context: &str) {
    state.assert_tree(context);
    state.assert_quotas(context);
    let never = Interrupt::never();
    for (key, quota) in meta.quotas(&never).expect("quotas") {
        let QuotaKey::Dir(dir) = key else { continue };
        assert!(quota.used_inodes <= quota.max_inodes, "{key:?} has {quota:?}: {context}");
        for strict in [false, true] {
            let usage = meta.compare_tree(dir, &counting(strict, &never)).expect("compare");
            assert_eq!(usage.difference(), (0, 0), "{usage:?}, strict: {strict}, {context}");
        }
    }
    for usage in meta.compare_owners(&counting(false, &never)).expect("compare") {
        assert_eq!(usage.difference(), (0, 0), "{usage:?}, {context}");
    }
}

/// One client: every step is exact by itself.
pub fn random_changes_are_counted(factory: &Factory<'_>) {
    for seed in seeds(3) {
        let store = factory();
        let meta = store.format_with_owners((seed % 2) as i64);
        for (ino, parent) in DIRS {
            meta.run(create(parent, &format!("d{ino}"), ino, FileType::Dir), &Interrupt::never()).unwrap();
        }
        for dir in LIMITED {
            assert_eq!(limit(&meta, QuotaKey::Dir(Ino(dir)), INODES), Ok(true));
        }
        assert_eq!(limit(&meta, QuotaKey::Dir(Ino::ROOT), ALL), Ok(true));
        let done = AtomicU64::new(0);
        for round in 0..4 {
            let rng = Rng::seeded(seed * 100 + round);
            Step { meta: &meta, rng, next: 100_000 * (round + 1) }.steps(60, &done);
            check(&meta, &State::of(store.open().as_ref()), &format!("seed {seed}, round {round}"));
        }
        assert!(done.into_inner() > 40, "seed {seed}: too few succeeded");
    }
}

/// Eight clients at once.
pub fn a_storm_under_nested_quotas_is_counted(factory: &Factory<'_>) {
    storm(factory, false);
}

/// The same; one of the quotas is set while they work, and they learn of it with their heartbeats.
pub fn a_quota_set_in_a_storm_is_exact(factory: &Factory<'_>) {
    storm(factory, true);
}

/// Ends the other threads when it goes, also in a panic.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// On the clock of the machine.
fn storm(factory: &Factory<'_>, sets_meanwhile: bool) {
    const CLIENTS: u64 = 8;
    for seed in seeds(1) {
        let store = factory();
        let first = store.format_with_owners(0);
        for (ino, parent) in DIRS {
            first.run(create(parent, &format!("d{ino}"), ino, FileType::Dir), &Interrupt::never()).unwrap();
        }
        for dir in &LIMITED[usize::from(sets_meanwhile)..] {
            assert_eq!(limit(&first, QuotaKey::Dir(Ino(*dir)), INODES), Ok(true));
        }
        assert_eq!(limit(&first, QuotaKey::Dir(Ino::ROOT), ALL), Ok(true));
        let clients: Vec<Arc<Meta>> = (0..CLIENTS)
            .map(|_| {
                let clock = Options::default().clock;
                Meta::open(store.open(), Options { clock, ..options() }).expect("open")
            })
            .collect();
        let (setter, clients) = clients.split_first().expect("several");
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let settled = thread::scope(|scope| {
            for (number, meta) in clients.iter().enumerate() {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        meta.beat().expect("beat").expect("the volume is there");
                        Interrupt::never().sleep(std::time::Duration::from_millis(200));
                    }
                });
                let (done, over) = (&done, &over);
                scope.spawn(move || {
                    let number = number as u64 + 1;
                    for round in 0..MAX_ROUNDS {
                        let rng = Rng::seeded(seed * 1000 + number * 100 + round);
                        Step { meta, rng, next: 1_000_000 * number + 1000 * (round + 1) }.steps(30, done);
                        if over.load(Ordering::Relaxed) && round >= 2 {
                            break;
                        }
                    }
                });
            }
            // The others end whatever becomes of this one.
            let _end = EndOnDrop(&over);
            // What is there already may be more than in the other trees.
            if sets_meanwhile { limit(setter, QuotaKey::Dir(Ino(LIMITED[0])), ALL) } else { Ok(true) }
        });
        let context = format!("seed {seed}");
        let state = State::of(store.open().as_ref());
        // The directory may have been removed meanwhile.
        let removed = || state.node(Ino(LIMITED[0])).is_none_or(|attr| attr.parent.is_trash());
        assert!(
            settled == Ok(true) || settled == Err(FsError::NotFound) && removed(),
            "the quota could not be counted: {settled:?}, {context}"
        );
        assert!(done.into_inner() > 100, "too few succeeded: {context}");
        check(setter, &state, &context);
    }
}
