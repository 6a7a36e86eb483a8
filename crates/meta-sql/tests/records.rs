//! Every record survives the way into its table and back, by all the ways that lead there.

mod support;

use bytes::Bytes;
use sluice_meta::{
    engine::{Engine, Found, List, Read, Scan, Write},
    schema::{
        AclEntry, AclRule, Counter, DirStat, Entry, FlockKind, Key, LockOwner, PlockRange, Quota, QuotaKey,
        Row, Session, SessionInfo, UNSET, VolumeFormat,
    },
};
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Slice, Time};
use support::{commit, fresh, get, rows, scan};

fn name(bytes: &[u8]) -> Name {
    Name::stored(bytes)
}

fn attr() -> Attr {
    Attr {
        flags: AttrFlags(35),
        kind: FileType::File,
        mode: 0o7654,
        uid: u32::MAX,
        gid: 1 << 31,
        atime: Time { sec: 1_700_000_000, nsec: 999_999_999 },
        mtime: Time { sec: 0, nsec: 1 },
        ctime: Time { sec: 4_000_000_000, nsec: 1_999 },
        nlink: 3,
        length: 1 << 57,
        rdev: u32::MAX,
        parent: Ino(0x7FFF_FFFF_1000_0001),
        access_acl: 7,
        default_acl: u32::MAX,
        tier: 3,
    }
}

/// At least one of each record that is stored.
fn every_row() -> Vec<Row> {
    let owner = LockOwner { sid: 9, owner: u64::MAX - 3 };
    let range = PlockRange { write: true, pid: 77, start: 5, end: 0x7FFF_FFFF_FFFF_FFFF };
    let rule = AclRule {
        owner: 7,
        group: 5,
        mask: UNSET,
        other: 0,
        users: vec![AclEntry { id: u32::MAX, perm: 6 }],
        groups: vec![AclEntry { id: 1, perm: 7 }, AclEntry { id: 2, perm: 0 }],
    };
    let quota = Quota { max_space: 1 << 40, max_inodes: -1, used_space: -5, used_inodes: 9 };
    let info =
        SessionInfo { version: "1".into(), host_name: "h".into(), process_id: 4, ..Default::default() };
    let slice = Slice { pos: 4, id: u64::MAX >> 1, size: 300, off: 1, len: 200 };
    vec![
        Row::setting(&VolumeFormat { name: "round".into(), capacity: u64::MAX >> 1, ..Default::default() }),
        Row::Counter(Counter::UsedSpace, -4096),
        Row::Node(Ino(2), attr()),
        Row::Entry(Ino(1), name(b"n\xff'\"\n"), Entry { kind: FileType::File, ino: Ino(2) }),
        Row::Symlink(Ino(3), Bytes::from_static(b"../\xfe/x")),
        Row::Xattr(Ino(2), name(b"user.text"), Bytes::from_static(b"\0binary\xff")),
        Row::Xattr(Ino(2), name(b"user.\xff"), Bytes::new()),
        Row::Chunk(Ino(2), u32::MAX - 1, vec![slice, Slice::hole(0, 1)]),
        Row::SliceRef(u64::MAX >> 1, 300, 2),
        Row::DelFile(Ino(4), 1 << 50, 1_700_000_000),
        Row::DelSlices(12, 1_700_000_001, vec![(u64::MAX, u32::MAX), (1, 2)]),
        Row::Acl(7, rule),
        Row::DirStat(Ino(1), DirStat { length: -1, space: 1 << 45, inodes: 3 }),
        Row::Quota(QuotaKey::Dir(Ino(1)), quota),
        Row::Quota(QuotaKey::User(u32::MAX), quota),
        Row::Quota(QuotaKey::Group(0), quota),
        Row::Session(9, Session { expire: 5, info: Some(info.to_json()) }),
        Row::Session(10, Session { expire: 6, info: None }),
        Row::Sustained(9, Ino(2)),
        Row::Flock(Ino(2), owner, FlockKind::Write),
        Row::Plock(Ino(2), owner, vec![range, PlockRange { write: false, start: 0, end: 4, ..range }]),
        Row::Detached(Ino(8), 1_700_000_002),
        Row::Writer(9, 3, u64::MAX),
    ]
}

#[test]
fn every_record_is_read_back_as_it_was_written() {
    let (_dir, engine) = fresh();
    for row in every_row() {
        assert_eq!(get(&engine, row.key()), None, "not there yet");
    }
    commit(&engine, every_row().into_iter().map(Write::Insert).collect()).expect("insert");
    for row in every_row() {
        assert_eq!(get(&engine, row.key()), Some(row));
    }
    commit(&engine, every_row().into_iter().map(Write::Put).collect()).expect("put what is there");
    let reads: Vec<Read> = every_row().iter().map(|row| Read::Get(row.key())).collect();
    assert_eq!(
        engine.read(&reads).expect("read"),
        every_row().into_iter().map(|row| Found::Row(Some(row))).collect::<Vec<_>>()
    );
    commit(&engine, every_row().iter().map(|row| Write::Delete(row.key())).collect()).expect("delete");
    for row in every_row() {
        assert_eq!(get(&engine, row.key()), None, "deleted");
    }
    commit(&engine, every_row().into_iter().map(Write::Put).collect()).expect("put what is not there");
    commit(&engine, every_row().iter().map(|row| Write::Discard(row.key())).collect()).expect("discard");
    commit(&engine, every_row().iter().map(|row| Write::Discard(row.key())).collect())
        .expect("discard nothing");
    for row in every_row() {
        assert_eq!(get(&engine, row.key()), None, "discarded");
    }
}

#[test]
fn scans_return_every_record_whatever_the_page() {
    let (_dir, engine) = fresh();
    commit(&engine, every_row().into_iter().map(Write::Insert).collect()).expect("insert");
    let all = [
        Scan::Nodes,
        Scan::AllEntries,
        Scan::Chunks,
        Scan::SliceRefs,
        Scan::DelFiles,
        Scan::DelSlices,
        Scan::Sessions,
        Scan::Sustained,
        Scan::Detached,
        Scan::Acls,
        Scan::DirStats,
        Scan::Quotas,
        Scan::Writers,
    ];
    let scanned: Vec<Row> = all.into_iter().flat_map(|kind| scan(&engine, kind, 1)).collect();
    for row in every_row() {
        let unscanned = matches!(
            row,
            Row::Setting(_)
                | Row::Counter(..)
                | Row::Symlink(..)
                | Row::Xattr(..)
                | Row::Flock(..)
                | Row::Plock(..)
        );
        assert_eq!(scanned.iter().filter(|found| **found == row).count(), usize::from(!unscanned), "{row:?}");
    }
    for kind in all {
        assert_eq!(scan(&engine, kind, 1), scan(&engine, kind, 1000), "{kind:?}");
    }
}

#[test]
fn a_directory_is_paged_in_the_order_of_its_names() {
    let (_dir, engine) = fresh();
    let dir = Ino(1);
    let mut expected = Vec::new();
    for n in 0..1000_u64 {
        let ino = Ino(100 + n);
        expected.push(Row::Entry(
            dir,
            name(format!("{:03}", n * 7 % 1000).as_bytes()),
            Entry { kind: FileType::File, ino },
        ));
        if n % 3 != 0 {
            expected.push(Row::Node(ino, attr()));
        }
    }
    // Neighbours in the table that must not appear.
    let stranger = |dir, n: &[u8]| Row::Entry(dir, name(n), Entry { kind: FileType::Dir, ino: Ino(9999) });
    let strangers = [stranger(Ino(0), b"zzz"), stranger(Ino(2), b"\x01")];
    commit(&engine, expected.iter().cloned().chain(strangers).map(Write::Insert).collect()).expect("insert");
    let by_name = |row: &Row| if let Row::Entry(_, name, _) = row { Some(name.clone()) } else { None };
    for limit in [1, 7, 999, 1000, 1001] {
        let entries = scan(&engine, Scan::Entries { dir, nodes: false }, limit);
        assert_eq!(entries.len(), 1000);
        assert!(entries.is_sorted_by_key(by_name));
        let joined = scan(&engine, Scan::Entries { dir, nodes: true }, limit);
        assert_eq!(joined.len(), expected.len());
        for row in &expected {
            assert!(joined.contains(row), "{row:?} at {limit} a page");
        }
    }
    let found =
        engine.read(&[Read::Names { dir, limit: 5 }, Read::Names { dir, limit: 5000 }]).expect("names");
    let lengths = found.iter().map(|found| if let Found::Names(names) = found { names.len() } else { 0 });
    assert_eq!(lengths.collect::<Vec<_>>(), [5, 1000]);
}

#[test]
fn entries_lead_to_their_nodes_and_to_their_parents() {
    let (_dir, engine) = fresh();
    let entry = |dir, text: &[u8], ino| Row::Entry(Ino(dir), name(text), Entry { kind: FileType::File, ino });
    let node = Row::Node(Ino(5), attr());
    let (a, b, c) = (entry(1, b"a", Ino(5)), entry(2, b"b", Ino(5)), entry(2, b"c", Ino(5)));
    let lost = entry(1, b"lost", Ino(6));
    let writes = [&node, &a, &b, &c, &lost].map(|row| Write::Insert(row.clone()));
    commit(&engine, writes.to_vec()).expect("insert");
    let follow = |dir, text: &[u8]| rows(&engine, Read::Follow(Ino(dir), name(text)));
    assert_eq!(follow(1, b"a"), [a, node]);
    assert_eq!(follow(1, b"lost"), [lost]);
    assert_eq!(follow(1, b"A"), []);
    let parents = rows(&engine, Read::All(List::Parents(Ino(5))));
    assert_eq!(parents, [Row::Parents(Ino(5), Ino(1), 1), Row::Parents(Ino(5), Ino(2), 2)]);
    assert_eq!(get(&engine, Key::Parents(Ino(5), Ino(2))), Some(Row::Parents(Ino(5), Ino(2), 2)));
    assert_eq!(get(&engine, Key::Parents(Ino(5), Ino(3))), None);
}

#[test]
fn lists_return_what_belongs_to_them_and_can_be_cleared() {
    let (_dir, engine) = fresh();
    let owner = |sid| LockOwner { sid, owner: 1 };
    let chunk = |ino, index| Row::Chunk(Ino(ino), index, vec![Slice::whole(0, 1, 1)]);
    let mine = [
        Row::Xattr(Ino(5), name(b"a"), Bytes::new()),
        chunk(5, 1),
        chunk(5, 2),
        Row::Flock(Ino(5), owner(1), FlockKind::Read),
        Row::Plock(Ino(5), owner(1), vec![]),
        Row::Sustained(1, Ino(5)),
        Row::Writer(1, 0, 0),
    ];
    let others = [
        Row::Xattr(Ino(6), name(b"a"), Bytes::new()),
        chunk(5, 0),
        chunk(5, 3),
        chunk(6, 1),
        Row::Flock(Ino(6), owner(2), FlockKind::Read),
        Row::Plock(Ino(6), owner(2), vec![]),
        Row::Sustained(2, Ino(5)),
        Row::Writer(2, 0, 0),
    ];
    commit(&engine, mine.iter().chain(&others).cloned().map(Write::Insert).collect()).expect("insert");
    let lists = [
        (List::Xattrs(Ino(5)), 0..1),
        (List::Chunks(Ino(5), 1, 3), 1..3),
        (List::Flocks(Ino(5)), 3..4),
        (List::Plocks(Ino(5)), 4..5),
        (List::LocksOf(1), 3..5),
        (List::Sustained(1), 5..6),
        (List::Lanes(1), 6..7),
    ];
    for (list, range) in lists.clone() {
        assert_eq!(rows(&engine, Read::All(list)), &mine[range]);
    }
    for (list, _) in lists {
        if !matches!(list, List::LocksOf(_) | List::Sustained(_)) {
            commit(&engine, vec![Write::Clear(list)]).expect("clear");
            assert_eq!(rows(&engine, Read::All(list)), []);
        }
    }
    for row in others {
        assert_eq!(get(&engine, row.key()), Some(row), "not of the lists");
    }
}

#[test]
fn what_adds_adds_to_what_is_there() {
    let (_dir, engine) = fresh();
    let node = |ino, attr| Row::Node(Ino(ino), attr);
    let (one, two) = (Slice::whole(0, 1, 10), Slice::whole(10, 2, 10));
    let quota = Quota { max_space: 1, ..Default::default() };
    let user = QuotaKey::User(5);
    let stat = DirStat { length: 1, space: 2, inodes: 3 };
    let first = [
        node(5, attr()),
        node(6, attr()),
        Row::SliceRef(7, 1, 1),
        Row::DirStat(Ino(5), stat),
        Row::Quota(user, quota),
        Row::Quota(QuotaKey::Dir(Ino(5)), quota),
    ];
    commit(&engine, first.map(Write::Insert).to_vec()).expect("insert");
    // Later than the mtime, earlier than the ctime, and between two microseconds.
    let time = Time { sec: 4_000_000_000, nsec: 1_500 };
    let adds = vec![
        Write::Bump { ino: Ino(5), nlink: -1, time: Some(time) },
        Write::Bump { ino: Ino(6), nlink: 4, time: None },
        Write::Count(Counter::NextSession, 3),
        Write::Refer(7, 1, 2),
        Write::Refer(8, 1, -1),
        Write::Use(Ino(5), stat),
        Write::Use(Ino(6), stat),
        Write::Charge(user, 10, -1),
        Write::Charge(QuotaKey::Dir(Ino(5)), 20, 2),
        Write::Charge(QuotaKey::Dir(Ino(6)), 20, 2),
        Write::Charge(QuotaKey::Group(5), 10, 1),
        Write::Link(Ino(5), Ino(1), 1),
        Write::Append(Ino(5), 0, vec![one]),
        Write::Append(Ino(5), 0, vec![two, one]),
        Write::Count(Counter::NextSession, 4),
    ];
    commit(&engine, adds).expect("add");
    let bumped = Attr { nlink: 2, mtime: time, ..attr() };
    for row in [
        node(5, bumped),
        node(6, Attr { nlink: 7, ..attr() }),
        Row::Counter(Counter::NextSession, 7),
        Row::SliceRef(7, 1, 3),
        Row::SliceRef(8, 1, 0),
        Row::DirStat(Ino(5), stat.plus(stat)),
        Row::Quota(user, Quota { used_space: 10, used_inodes: -1, ..quota }),
        Row::Quota(QuotaKey::Dir(Ino(5)), Quota { used_space: 20, used_inodes: 2, ..quota }),
        Row::Chunk(Ino(5), 0, vec![one, two, one]),
    ] {
        assert_eq!(get(&engine, row.key()), Some(row));
    }
    let made = Quota { used_space: 10, used_inodes: 1, ..Quota::UNLIMITED };
    let group = QuotaKey::Group(5);
    assert_eq!(get(&engine, Key::Quota(group)), Some(Row::Quota(group, made)), "limits nothing");
    for key in [Key::DirStat(Ino(6)), Key::Quota(QuotaKey::Dir(Ino(6))), Key::Parents(Ino(5), Ino(1))] {
        assert_eq!(get(&engine, key), None, "without a record it stays without");
    }
    // The same microsecond, later nanoseconds.
    let later = Time { sec: 4_000_000_000, nsec: 1_999 };
    commit(&engine, vec![Write::Bump { ino: Ino(5), nlink: 0, time: Some(later) }]).expect("bump");
    assert_eq!(get(&engine, Key::Node(Ino(5))), Some(node(5, Attr { mtime: later, ..bumped })));
}
