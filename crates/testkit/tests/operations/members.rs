//! Members of a cache group and commits of others that come in between.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use sluice_meta::{
    Interrupt, Meta,
    engine::{Commit, Found, List, Read, Write},
    mem::MemEngine,
    ops::{group::JoinGroup, session::DropSession},
    schema::{Extra, Key, Member, Row},
};
use sluice_testkit::{
    operations::{SharedStore, options},
    wrap::{Counting, Hooked},
};
use sluice_types::FsError;

fn member(sid: u64) -> Member {
    Member { sid, group: "g".into(), address: "host:1".into(), ..Member::default() }
}

#[test]
fn a_membership_goes_in_the_commit_that_removes_its_session() {
    let store = crate::fresh();
    let (one, other) = (store.format(0), store.client());
    let (sid, never, joined) = (one.sid(), Interrupt::never(), AtomicU64::new(0));
    let commits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&commits);
    let engine = Hooked::new(store.open()).before_commit(move |commit: &Commit| {
        if commit.writes.contains(&Write::Discard(Key::Session(sid))) {
            // Behind the look at the membership.
            if joined.fetch_add(1, Ordering::SeqCst) == 0 {
                other.run(JoinGroup(member(sid)), &Interrupt::never()).unwrap();
            }
            seen.lock().push(commit.writes.clone());
        }
        Ok(())
    });
    let cleaner = Meta::open(Arc::new(engine), options()).unwrap();
    let drop = DropSession { sid, dead_before: Some(i64::MAX), keep_writer: false };
    assert_eq!(cleaner.run(drop, &never), Ok(true));
    let commits = commits.lock();
    assert_eq!(commits.len(), 2, "the first one did not know of the membership");
    let raised = |n: u64| Write::Put(Row::Extra(Extra::GroupVersion, 0, n.to_be_bytes().to_vec().into()));
    assert!(commits[1].contains(&raised(2)), "{commits:?}");
    let found = store.open().read(&[Read::All(List::Extras(Extra::Member))]).unwrap();
    assert_eq!(found, [Found::Rows(vec![])]);
}

/// As JuiceFS does, which leaves this client the right to commit.
#[test]
fn a_session_that_goes_before_the_commit_gets_no_membership() {
    let store = crate::fresh();
    store.format(0);
    let other = store.open();
    let engine = Hooked::new(store.open()).before_commit(move |commit: &Commit| {
        let joins = |write: &Write| match write {
            Write::Insert(Row::Extra(Extra::Member, sid, _)) => Some(*sid),
            _ => None,
        };
        if let Some(sid) = commit.writes.iter().find_map(joins) {
            let writes = vec![Write::Discard(Key::Session(sid))];
            other.commit(&Commit { writes, ..Commit::default() }).unwrap();
        }
        Ok(())
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    assert_eq!(meta.join_group(member(0), &Interrupt::never()), Err(FsError::Again));
    let found = store.open().read(&[Read::All(List::Extras(Extra::Member))]).unwrap();
    assert_eq!(found, [Found::Rows(vec![])]);
}

/// Whichever question somebody joins before, and however late the others are answered.
#[test]
fn a_version_is_never_newer_than_its_list() {
    for at in 0..8 {
        let store = crate::fresh();
        let one = store.format(0);
        one.join_group(member(0), &Interrupt::never()).unwrap();
        let (two, asked) = (store.client(), AtomicU64::new(0));
        let engine = Hooked::new(store.open()).asked_apart().before_ask(move |reads: &[Read]| {
            let group =
                |read: &Read| matches!(read, Read::All(_) | Read::Get(Key::Extra(..) | Key::Session(_)));
            if reads.iter().any(group) && asked.fetch_add(1, Ordering::SeqCst) == at {
                two.run(JoinGroup(member(two.sid())), &Interrupt::never()).unwrap();
            }
            Ok(())
        });
        let looking = Meta::open(Arc::new(engine), options()).unwrap();
        let seen = looking.members("g", &Interrupt::never()).unwrap();
        assert!(seen.members.len() as u64 >= seen.version, "joined before question {at}: {seen:?}");
        let then = one.members("g", &Interrupt::never()).unwrap();
        assert!(then.members.len() as u64 == then.version, "question {at}: {then:?}");
    }
}

#[test]
fn the_trips_of_a_group() {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let engine = counting.clone();
    let store = SharedStore::new(move || Arc::new(engine.clone()));
    let (meta, never) = (store.format(0), Interrupt::never());
    counting.assert_trips("join", 3, 1, || meta.join_group(member(0), &never).unwrap());
    counting.assert_trips("members", 2, 0, || meta.members("g", &never).unwrap());
    counting.assert_trips("leave", 1, 1, || meta.leave_group(meta.sid(), &never).unwrap());
    counting.assert_trips("the first key", 2, 1, || meta.group_keys(&never).unwrap());
    counting.assert_trips("keys", 1, 0, || meta.group_keys(&never).unwrap());
    counting.assert_trips("another key", 1, 1, || meta.change_group_key(&never).unwrap());
    counting.assert_trips("put a report", 1, 1, || meta.put_report(1, "x".into(), &never).unwrap());
    counting.assert_trips("a report", 1, 0, || meta.report(1, &never).unwrap());
    let drop = DropSession { sid: meta.sid(), dead_before: None, keep_writer: true };
    counting.assert_trips("drop a session", 1, 1, || meta.run(drop, &never).unwrap());
}
