//! Clients with a record cache that follow the changes of others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    ClientCache, Interrupt, Meta, Options,
    ops::{
        getattr::GetAttr,
        lookup::Lookup,
        rename::{Rename, RenameMode},
        setattr::{Changes, SetAttr},
        unlink::Unlink,
    },
};
use sluice_types::{Attr, Caller, FileType, FsError, FsResult, Ino};

use super::{Factory, SharedStore, at, create, options};
use crate::wrap::Counting;

/// By then everything must have been heard. What is remembered lives longer.
const TIMEOUT: Duration = Duration::from_mins(1);
const EXPIRE: Duration = Duration::from_hours(1);

struct Follower {
    meta: Arc<Meta>,
    engine: Counting,
}

impl Follower {
    fn of(store: &SharedStore) -> Self {
        let engine = Counting::new(store.open());
        let cache = ClientCache { expire: EXPIRE, ..ClientCache::default() };
        let options = Options { client_cache: Some(cache), ..options() };
        let meta = Meta::open(Arc::new(engine.clone()), options).expect("open");
        meta.follow(Box::new(|_| {}));
        Self { meta, engine }
    }

    fn look(&self, name: &str) -> FsResult<(Ino, Attr)> {
        self.meta.read_cached(&Lookup(at(1, name)), &Interrupt::never())
    }

    /// Looks until it answers what is wanted.
    fn see(&self, name: &str, what: &str, wanted: impl Fn(&FsResult<(Ino, Attr)>) -> bool) {
        let until = Instant::now() + TIMEOUT;
        loop {
            let seen = self.look(name);
            if wanted(&seen) {
                return;
            }
            assert!(Instant::now() < until, "{what} of {name} was not seen: {seen:?}");
            std::thread::yield_now();
        }
    }

    /// Looks until it needs no trip.
    fn remember(&self, name: &str) {
        let until = Instant::now() + TIMEOUT;
        loop {
            let before = self.engine.trips().follows;
            let seen = self.look(name);
            if self.engine.trips().follows == before {
                return;
            }
            assert!(Instant::now() < until, "{name} is asked for again and again: {seen:?}");
        }
    }
}

fn chmod(meta: &Meta, ino: u64, mode: u16) {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    let set = SetAttr { ino: Ino(ino), changes, caller: Caller::client() };
    meta.run(set, &Interrupt::never()).expect("chmod");
}

fn make(meta: &Meta, name: &str, ino: u64) {
    meta.run(create(1, name, ino, FileType::File), &Interrupt::never()).expect("create");
}

fn rename(meta: &Meta, from: &str, to: &str) {
    let rename =
        Rename { from: at(1, from), to: at(1, to), mode: RenameMode::Replace, caller: Caller::client() };
    meta.run(rename, &Interrupt::never()).expect("rename");
}

fn unlink(meta: &Meta, name: &str) {
    let unlink = Unlink { at: at(1, name), only: None, skip_trash: true, caller: Caller::client() };
    meta.run(unlink, &Interrupt::never()).expect("unlink");
}

/// What was looked up is not asked for again; what another client changes is seen all the same:
/// attributes, names that come, go and stand for something else.
pub fn what_others_change_is_seen(factory: &Factory<'_>) {
    let store = factory();
    let other = store.format(0);
    let follower = Follower::of(&store);
    for ino in (100..).step_by(2).take(3) {
        let (name, new_name) = (format!("a{ino}"), format!("b{ino}"));
        follower.remember(&name);
        make(&other, &name, ino);
        follower.see(&name, "a new name", Result::is_ok);
        follower.remember(&name);
        follower.remember(&new_name);
        chmod(&other, ino, 0o604);
        follower.see(&name, "a new mode", |seen| seen.as_ref().is_ok_and(|(_, attr)| attr.mode == 0o604));
        let kept = follower.meta.read_cached(&GetAttr(Ino(ino)), &Interrupt::never()).expect("it is there");
        assert_eq!(kept.mode, 0o604);
        rename(&other, &name, &new_name);
        follower.see(&name, "a name that went", |seen| *seen == Err(FsError::NotFound));
        follower.see(&new_name, "a name that came", Result::is_ok);
        follower.remember(&new_name);
        make(&other, &name, ino + 1);
        rename(&other, &name, &new_name);
        follower.see(&new_name, "another file", |seen| seen.as_ref().is_ok_and(|(of, _)| of.0 == ino + 1));
        follower.remember(&new_name);
        unlink(&other, &new_name);
        follower.see(&new_name, "a removal", |seen| *seen == Err(FsError::NotFound));
    }
}

/// Who changes something and leaves at once is noticed like everybody else, and so is who was never
/// seen to be there.
pub fn who_comes_and_goes_is_noticed(factory: &Factory<'_>) {
    let store = factory();
    make(&store.format(0), "a", 100);
    let follower = Follower::of(&store);
    for mode in [0o600, 0o640, 0o644] {
        follower.remember("a");
        let guest = store.client();
        chmod(&guest, 100, mode);
        guest.close().expect("close");
        follower.see("a", "a guest's change", |seen| seen.as_ref().is_ok_and(|(_, attr)| attr.mode == mode));
    }
}

/// Own changes show at once, and whoever asks instead of looking is told what is.
pub fn own_changes_and_questions_are_never_stale(factory: &Factory<'_>) {
    let store = factory();
    let other = store.format(0);
    make(&other, "a", 100);
    let follower = Follower::of(&store);
    for round in 0..20 {
        follower.remember("a");
        chmod(&follower.meta, 100, 0o600 + round);
        assert_eq!(follower.look("a").expect("there").1.mode, 0o600 + round);
        chmod(&other, 100, 0o700 + round);
        let asked = follower.meta.read(&GetAttr(Ino(100)), &Interrupt::never()).expect("there");
        assert_eq!(asked.mode, 0o700 + round);
        assert_eq!(follower.look("a").expect("there").1.mode, 0o700 + round, "an answer is remembered");
    }
}
