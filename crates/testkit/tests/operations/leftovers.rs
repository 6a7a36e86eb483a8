//! What must not be done twice, and what must not stay for ever.

use std::{sync::Arc, time::Duration};

use sluice_meta::{
    BlockSink, Interrupt, Meta, Options,
    check::{Finding, Repair},
    engine::{Commit, Found, Read, Scan, Write},
    ops::{
        acl::{AclKind, SetAcl},
        link::Link,
        lookup::Lookup,
        setattr::{Changes, SetAttr},
        unlink::Unlink,
    },
    schema::{AclEntry, AclRule, Counter, Entry, Key, Row},
    sort::SortSpace,
};
use sluice_testkit::operations::{at, create};
use sluice_types::{AttrFlags, Caller, FileType, FsError, FsResult, Ino, ManualClock, Name, Time};

/// A store whose blocks all can be deleted.
struct Deletes;

impl BlockSink for Deletes {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        slices.iter().map(|_| Ok(())).collect()
    }
}

#[test]
fn files_made_together_under_a_default_acl_share_its_rule() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(0);
    meta.run(create(1, "d", 10, FileType::Dir), &never).unwrap();
    let rule = AclRule {
        owner: 7,
        group: 5,
        mask: 7,
        other: 0,
        users: vec![AclEntry { id: 1000, perm: 7 }],
        groups: vec![],
    };
    let set = SetAcl {
        ino: Ino(10),
        kind: AclKind::Default,
        rule: Some(rule),
        was: None,
        caller: Caller::client(),
    };
    meta.run(set, &never).unwrap();
    let creates = (0..10).map(|n| create(10, &format!("f{n}"), 20 + n, FileType::File)).collect();
    let made: Vec<_> = meta.run_all(creates, &never).into_iter().map(|made| made.unwrap().attr).collect();
    assert!(made[0].access_acl != 0);
    assert!(made.iter().all(|attr| attr.access_acl == made[0].access_acl), "{made:?}");
    let rules = store.open().scan(Scan::Acls, None, 100).unwrap().rows;
    assert_eq!(rules.len(), 2, "the directory's and the files': {rules:?}");
}

#[test]
fn an_immutable_file_with_other_names_leaves_the_trash_as_others_do() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    store.format(1);
    let clock = ManualClock::new(Time { sec: 1_700_000_000, nsec: 0 });
    let options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
    let meta = Meta::open(store.open(), options).unwrap();
    let caller = Caller::client;
    meta.run(create(1, "f", 10, FileType::File), &never).unwrap();
    meta.run(Link { ino: Ino(10), at: at(1, "g"), caller: caller() }, &never).unwrap();
    meta.run(Unlink { at: at(1, "f"), only: None, skip_trash: false, caller: caller() }, &never).unwrap();
    let changes = Changes { flags: Some(AttrFlags(AttrFlags::IMMUTABLE)), ..Changes::default() };
    meta.run(SetAttr { ino: Ino(10), changes, caller: caller() }, &never).unwrap();
    let hours = || {
        let scan = Scan::Entries { dir: Ino::TRASH, nodes: false };
        store.open().scan(scan, None, 100).unwrap().rows.len()
    };
    assert_eq!(hours(), 1);
    clock.advance(Duration::from_hours(72));
    meta.clean(&Deletes, &never).unwrap();
    assert_eq!(hours(), 0);
    let (ino, attr) = meta.read(&Lookup(at(1, "g")), &never).unwrap();
    assert_eq!((ino, attr.nlink), (Ino(10), 1));
    let unlink = Unlink { at: at(1, "g"), only: None, skip_trash: false, caller: caller() };
    assert_eq!(meta.run(unlink, &never).map(drop), Err(FsError::Perm), "its name is safe");
}

#[test]
fn a_total_that_two_repair_is_repaired_once() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let one = store.format(0);
    let two = store.client();
    one.run(create(1, "f", 10, FileType::File), &never).unwrap();
    let engine = store.open();
    let counters = [Counter::TotalInodes, Counter::NextInode];
    let writes = vec![
        Write::Put(Row::Counter(Counter::TotalInodes, 50)),
        Write::Put(Row::Counter(Counter::NextInode, 2)),
    ];
    engine.commit(&Commit { writes, ..Commit::default() }).unwrap();
    let report = one.check(false, &SortSpace::default(), &never, &|_| {}).unwrap();
    let findings: Vec<Finding> = report.findings.all().unwrap().map(Result::unwrap).collect();
    let counts = |finding: &&Finding| matches!(finding, Finding::Total { .. } | Finding::NextNumber { .. });
    let found: Vec<&Finding> = findings.iter().filter(counts).collect();
    assert_eq!(found.len(), 2, "{findings:?}");
    for (meta, done) in [(&one, true), (&two, false)] {
        for finding in found.iter().copied().cloned() {
            let repair = Repair { finding, dir_mode: 0o755, busy_since: None };
            assert_eq!(meta.run(repair, &never), Ok(done));
        }
    }
    let stored = engine.read(&counters.map(|counter| Read::Get(Key::Counter(counter)))).unwrap();
    let is = |counter, value| Found::Row(Some(Row::Counter(counter, value)));
    assert_eq!(stored, [is(Counter::TotalInodes, 1), is(Counter::NextInode, 11)]);
}

/// What a check of the whole volume finds, without counters: these tests choose their own inodes.
fn findings(meta: &Meta) -> Vec<Finding> {
    let report = meta.check(false, &SortSpace::default(), &Interrupt::never(), &|_| {}).unwrap();
    let all = report.findings.all().unwrap().map(Result::unwrap);
    all.filter(|finding| !matches!(finding, Finding::NextNumber { .. })).collect()
}

#[test]
fn a_missing_root_is_found_and_made_again() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(0);
    meta.run(create(1, "f", 10, FileType::File), &never).unwrap();
    let writes = vec![Write::Delete(Key::Node(Ino::ROOT))];
    store.open().commit(&Commit { writes, ..Commit::default() }).unwrap();
    let (found, meta) = (findings(&meta), store.client());
    assert_eq!(found, [Finding::NoRoot]);
    let repair = Repair { finding: Finding::NoRoot, dir_mode: 0o755, busy_since: None };
    assert_eq!(meta.run(repair.clone(), &never), Ok(true));
    assert_eq!(meta.run(repair, &never), Ok(false), "there is one now");
    assert_eq!(findings(&meta), []);
    assert_eq!(meta.read(&Lookup(at(1, "f")), &never).unwrap().0, Ino(10));
}

#[test]
fn names_that_no_program_can_use_are_found_and_replaced() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(0);
    meta.run(create(1, "d", 10, FileType::Dir), &never).unwrap();
    let unusable: [&[u8]; 4] = [b"a/b", b"..", b"", b"c\0d"];
    let mut expected = Vec::new();
    for (name, n) in unusable.into_iter().zip(20..) {
        meta.run(create(10, &n.to_string(), n, FileType::File), &never).unwrap();
        let usable = Name::new(n.to_string().as_bytes()).unwrap();
        let (dir, name, ino) = (Ino(10), Name::stored(name), Ino(n));
        let writes = vec![
            Write::Delete(Key::Entry(dir, usable)),
            Write::Insert(Row::Entry(dir, name.clone(), Entry { kind: FileType::File, ino })),
        ];
        store.open().commit(&Commit { writes, ..Commit::default() }).unwrap();
        expected.push(Finding::UnusableName { dir, name, ino });
    }
    let meta = store.client();
    assert_eq!(findings(&meta), expected);
    let below = meta.check_tree(Ino::ROOT, true, &SortSpace::default(), &never, &|_| {}).unwrap();
    let below: Vec<Finding> = below.findings.all().unwrap().map(Result::unwrap).collect();
    assert!(expected.iter().all(|finding| below.contains(finding)), "{below:?}");
    for finding in expected {
        let repair = Repair { finding, dir_mode: 0o755, busy_since: None };
        assert_eq!(meta.run(repair.clone(), &never), Ok(true));
        assert_eq!(meta.run(repair, &never), Ok(false), "it was replaced");
    }
    assert_eq!(findings(&meta), []);
    for ino in 20..24 {
        assert_eq!(meta.read(&Lookup(at(10, &format!("lost+found.{ino}"))), &never).unwrap().0, Ino(ino));
    }
}

#[test]
fn an_unusable_name_in_the_trash_is_replaced_by_one_that_still_says_where_the_file_was() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(1);
    meta.run(create(1, "d", 10, FileType::Dir), &never).unwrap();
    meta.run(create(10, "f", 20, FileType::File), &never).unwrap();
    meta.run(Unlink { at: at(10, "f"), only: None, skip_trash: false, caller: Caller::client() }, &never)
        .unwrap();
    let names = |dir| {
        let rows = store.open().scan(Scan::Entries { dir, nodes: false }, None, 100).unwrap().rows;
        let entries = rows.into_iter().map(|row| match row {
            Row::Entry(_, name, entry) => (name, entry),
            other => panic!("{other:?} is no entry"),
        });
        entries.collect::<Vec<_>>()
    };
    let hour = names(Ino::TRASH)[0].1.ino;
    let (stored, entry) = names(hour).remove(0);
    assert_eq!(stored.as_ref(), b"10-20-f");
    let name = Name::stored(b"10-20-a/b");
    let writes =
        vec![Write::Delete(Key::Entry(hour, stored)), Write::Insert(Row::Entry(hour, name.clone(), entry))];
    store.open().commit(&Commit { writes, ..Commit::default() }).unwrap();
    let meta = store.client();
    let finding = Finding::UnusableName { dir: hour, name, ino: Ino(20) };
    assert_eq!(findings(&meta), std::slice::from_ref(&finding));
    let repair = Repair { finding, dir_mode: 0o755, busy_since: None };
    assert_eq!(meta.run(repair, &never), Ok(true));
    assert_eq!(names(hour)[0].0.as_ref(), b"10-20-lost+found.20");
}
