//! Many clients work under nested quotas and those of users and groups, and move trees across them:
//! usage is exact afterwards, and no limit was exceeded.
//!
//! Eight clients together never exceed a limit, because the commit checks it. A new limit applies
//! to a client from its next heartbeat on. Limits of users and groups do not refuse a change of the
//! owner, so their usage may be above the limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use sluice_meta::{Interrupt, Meta, Options, ops::quota::SetLimits, quota::Counting, schema::QuotaKey};
use sluice_types::{FileType, FsError, FsResult, Ino, Rng};

use super::{
    clients::{Factory, NOW, SharedStore, create, options, seeds},
    quota_steps::{DIRS, FIRST, Step},
    state::State,
};

/// Those with a quota.
const LIMITED: [u64; 4] = [FIRST, FIRST + 1, FIRST + 3, FIRST + 4];
/// Inodes that each of them may hold.
const INODES: i64 = 40;
/// Inodes that the whole volume may hold: clones of clones would double it again and again.
const ALL: i64 = 150;
/// Clients of a stress test.
const CLIENTS: u64 = 8;
/// Fewest rounds of a client.
const MIN_ROUNDS: u64 = 2;
/// Most rounds of a client: what it removes stays in the trash, which no quota limits, and the
/// reference engine reads all records for a list.
const MAX_ROUNDS: u64 = 12;
fn counting(strict: bool, interrupt: &Interrupt) -> Counting<'_> {
    Counting { strict, interrupt, progress: &|_| {} }
}

fn limit(meta: &Meta, key: QuotaKey, inodes: i64) -> FsResult<bool> {
    let never = Interrupt::never();
    let limits = SetLimits { key, max_space: Some(0), max_inodes: Some(inodes) };
    Ok(meta.set_quota(limits, &counting(false, &never), &|_| {})?.settled)
}

/// What is on record is what is there, however it is counted, and within its limits.
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

/// The volume, with limits of the directories from the `from`th on, and of owners.
fn volume(store: &SharedStore, trash_days: i64, from: usize) -> Arc<Meta> {
    let meta = store.format_with_owners(trash_days);
    for (ino, parent) in DIRS {
        meta.run(create(parent, &format!("d{ino}"), ino, FileType::Dir), &Interrupt::never()).unwrap();
    }
    for dir in &LIMITED[from..] {
        assert_eq!(limit(&meta, QuotaKey::Dir(Ino(*dir)), INODES), Ok(true));
    }
    assert_eq!(limit(&meta, QuotaKey::Dir(Ino::ROOT), ALL), Ok(true));
    for key in [QuotaKey::User(1), QuotaKey::Group(2)] {
        assert_eq!(limit(&meta, key, INODES), Ok(true));
    }
    meta
}

/// One client: every step is exact by itself, and so is what empties the trash.
pub fn random_changes_are_counted(factory: &Factory<'_>) {
    for seed in seeds(4) {
        let store = factory();
        let trash_days = (seed % 2) as i64;
        let mut meta = volume(&store, trash_days, 0);
        let done = AtomicU64::new(0);
        for round in 0..4 {
            let rng = Rng::seeded(seed * 100 + round);
            Step { meta: &meta, rng, next: 100_000 * (round + 1) }.steps(80, &done);
            let context = format!("seed {seed}, round {round}");
            check(&meta, &State::of(store.open().as_ref()), &context);
            if round % 2 == 1 {
                let later = NOW.sec + (trash_days + 1) * 86_400;
                meta.clean_trash(later, &Interrupt::never(), &|_| {}).expect("the trash");
                // On its clock the hour that is gone is still the one for what is removed.
                meta = store.client();
                check(&meta, &State::of(store.open().as_ref()), &format!("{context}, emptied"));
            }
        }
        assert!(done.into_inner() > 50, "seed {seed}: too few succeeded");
    }
}

/// Eight clients at once.
pub fn stress_under_nested_quotas_is_counted(factory: &Factory<'_>) {
    for seed in seeds(2) {
        let (store, meta) = run_clients(factory, seed, false);
        check(&meta, &State::of(store.open().as_ref()), &format!("seed {seed}"));
    }
}

/// The same; limits are set, and those of owners taken away, while they work, and they learn of
/// them with their heartbeats.
pub fn a_quota_set_under_stress_is_exact(factory: &Factory<'_>) {
    for seed in seeds(1) {
        let (store, meta) = run_clients(factory, seed, true);
        check(&meta, &State::of(store.open().as_ref()), &format!("seed {seed}"));
    }
}

/// Ends the other threads when it goes, also in a panic.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// On the clock of the machine.
fn run_clients(factory: &Factory<'_>, seed: u64, sets_meanwhile: bool) -> (SharedStore, Arc<Meta>) {
    let context = format!("seed {seed}");
    let store = factory();
    drop(volume(&store, 0, usize::from(sets_meanwhile)));
    let open = || {
        let clock = Options::default().clock;
        Meta::open(store.open(), Options { clock, ..options() }).expect("open")
    };
    let (setter, clients) = (open(), (0..CLIENTS).map(|_| open()).collect::<Vec<Arc<Meta>>>());
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(!sets_meanwhile));
    thread::scope(|scope| {
        for (number, meta) in clients.iter().enumerate() {
            let (done, over) = (&done, &over);
            if sets_meanwhile {
                scope.spawn(|| beat(meta, over));
            }
            scope.spawn(move || {
                let number = number as u64 + 1;
                for round in 0..MAX_ROUNDS {
                    let rng = Rng::seeded(seed * 1000 + number * 100 + round);
                    Step { meta, rng, next: 1_000_000 * number + 1000 * (round + 1) }.steps(30, done);
                    if over.load(Ordering::Relaxed) && round >= MIN_ROUNDS {
                        break;
                    }
                }
            });
        }
        if sets_meanwhile {
            // The others end whatever becomes of this one.
            let _end = EndOnDrop(&over);
            set_meanwhile(&store, &setter, &context);
        }
    });
    assert!(done.into_inner() > 40, "too few succeeded: {context}");
    (store, setter)
}

/// Shows that a client lives, and has it load the quotas, again and again.
fn beat(meta: &Meta, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        meta.beat().expect("beat").expect("the volume is there");
        Interrupt::never().sleep(Duration::from_millis(200));
    }
}

/// Limits come and go. What is there already may be more than the other trees may hold.
fn set_meanwhile(store: &SharedStore, setter: &Meta, context: &str) {
    let never = Interrupt::never();
    let gone = |dir: u64| {
        let state = State::of(store.open().as_ref());
        state.node(Ino(dir)).is_none_or(|attr| attr.parent.is_trash())
    };
    let first = QuotaKey::Dir(Ino(LIMITED[0]));
    for (key, max) in [(first, ALL), (QuotaKey::User(0), ALL), (QuotaKey::Group(2), ALL)] {
        let settled = limit(setter, key, max);
        // The directory may have been removed meanwhile, and the quota with it.
        let absent = matches!(settled, Err(FsError::NotFound | FsError::NoData));
        let removed = || absent && gone(LIMITED[0]);
        assert!(settled == Ok(true) || removed(), "{key:?} could not be counted: {settled:?}, {context}");
    }
    for key in [QuotaKey::User(1), QuotaKey::User(0)] {
        setter.delete_quota(key, &never).expect("delete");
    }
}
