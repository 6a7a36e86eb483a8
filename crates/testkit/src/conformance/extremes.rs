//! Values at the edges of what the volume format can hold.

use bytes::Bytes;
use sluice_meta::{
    engine::{EngineError, Expect, Found, Hold, Read, Scan, Write},
    schema::{Counter, DirStat, Extra, Key, LockOwner, PlockRange, Quota, QuotaKey, Row},
};
use sluice_types::{Attr, AttrFlags, FileType, Ino, MAX_FILE_SIZE, MAX_NAME, Name, Slice, Time};

use super::{
    Factory,
    sample::{dir_attr, dir_row, entry_row, file_attr, file_row},
    store::{Store, name, node},
};

/// Every byte but NUL and the slash, as a name by itself and together, up to the longest name; case
/// matters.
pub fn names_of_all_bytes(factory: &Factory<'_>) {
    let valid: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let mut called: Vec<Name> = valid.iter().filter_map(|byte| Name::new(&[*byte]).ok()).collect();
    called.extend(valid.iter().map(|byte| Name::new(&[*byte, b'.', *byte]).expect("valid")));
    called.push(Name::new(&valid).expect("valid"));
    called.push(Name::new(&[0xFF; MAX_NAME]).expect("valid"));
    called.push(Name::new("é".repeat(127).as_bytes()).expect("valid"));
    called.push(Name::new(b"trailing space ").expect("valid"));
    called.push(Name::new(b"trailing space").expect("valid"));
    called.push(Name::new(b"%_\\'\"`;--\r\n").expect("valid"));
    called.push(Name::new(b"...").expect("valid"));
    called.sort();
    called.dedup();
    let rows: Vec<Row> = called.iter().zip(1000..).map(|(name, ino)| entry_row(2, name, ino)).collect();
    let store = Store::with(factory, rows.clone());
    store.insert(called.iter().zip(1000..).map(|(_, ino)| file_row(ino)).collect());
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    let scanned: Vec<Row> =
        store.scan_with(Scan::Entries { dir: Ino(2), nodes: false }, 64, |_| {}).into_values().collect();
    assert!(scanned == rows, "{} of {} names", scanned.len(), rows.len());
    let Found::Names(mut all) = store.read(&[Read::Names { dir: Ino(2), limit: 10_000 }]).remove(0) else {
        panic!("no names");
    };
    all.sort();
    assert_eq!(all, called);
    let follows: Vec<Read> = called.iter().map(|name| Read::Follow(Ino(2), name.clone())).collect();
    for (found, (row, ino)) in store.read(&follows).into_iter().zip(rows.iter().zip(1000..)) {
        assert_eq!(found, Found::Rows(vec![row.clone(), file_row(ino)]));
    }
    store.write(rows.iter().map(|row| Write::Delete(row.key())).collect());
    assert_eq!(store.scan(Scan::AllEntries), []);
}

/// Bytes of a value that every engine holds: a column of MySQL ends there.
const LARGE: usize = 65_535;

/// Large extended attributes, targets of 4095 bytes, chunks of 2500 records, long lists of locks
/// and slices. What is larger still is held whole or refused, never cut off.
pub fn large_values(factory: &Factory<'_>) {
    let noise = |length: usize| -> Bytes { (0..length).map(|at| (at * 7 + at / 256) as u8).collect() };
    let slices: Vec<Slice> =
        (0..2500).map(|n| Slice { pos: n, id: u64::from(n) + (1 << 40), size: 9, off: 1, len: 8 }).collect();
    let ranges: Vec<PlockRange> =
        (0..1000).map(|n| PlockRange { write: n % 2 == 0, pid: 1, start: n * 10, end: n * 10 + 5 }).collect();
    let owner = LockOwner { sid: 3, owner: u64::MAX };
    let rows = vec![
        Row::Xattr(Ino(5), name("user.large"), noise(LARGE)),
        Row::Xattr(Ino(5), name(&format!("user.{}", "n".repeat(250))), noise(1)),
        Row::Extra(Extra::Report, 1, noise(LARGE).to_vec().into()),
        Row::Symlink(Ino(6), noise(4095)),
        Row::Chunk(Ino(7), 0, slices.clone()),
        Row::Plock(Ino(7), owner, ranges),
        Row::DelSlices(8, 9, (0..2500).map(|n| (n, n as u32)).collect()),
        Row::Xattr(Ino(5), name("user.end"), noise(2)),
        Row::Xattr(Ino(5), name("user.end "), noise(3)),
        Row::Xattr(Ino(5), name("user.END"), noise(4)),
    ];
    let store = Store::with(factory, rows.clone());
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    let held: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
    let expects = rows.iter().map(|row| Expect::Row(row.clone(), Hold::Lock)).collect();
    store.read_and_commit(&held, expects, vec![]).expect("unchanged");
    let twice = Row::Chunk(Ino(7), 0, [slices.clone(), slices.clone()].concat());
    let larger = Row::Xattr(Ino(5), name("user.larger"), noise(LARGE + 1));
    for (write, before, after) in [
        (Write::Append(Ino(7), 0, slices), Some(&rows[4]), &twice),
        (Write::Insert(larger.clone()), None, &larger),
    ] {
        match store.commit(vec![write]) {
            Ok(()) => store.assert_row(&after.key(), Some(after)),
            Err(EngineError::Refused { .. } | EngineError::Full(_)) => store.assert_row(&after.key(), before),
            Err(error) => panic!("{error}"),
        }
    }
    let many: Vec<Row> =
        (0..32).map(|n| Row::Xattr(Ino(50), name(&format!("user.{n}")), noise(LARGE))).collect();
    store.insert(many.clone());
    assert_eq!(store.all(sluice_meta::engine::List::Xattrs(Ino(50))).len(), many.len());
}

/// Neighbours that are one number to a double, and the inodes of the trash, stay apart everywhere.
pub fn inode_numbers_beyond_doubles(factory: &Factory<'_>) {
    let double = 1u64 << 53;
    let near_double = double - 2..double + 3;
    let trash = Ino::TRASH.0..Ino::TRASH.0 + 5;
    let inos: Vec<u64> = near_double.chain(trash).chain([i64::MAX as u64 - 1]).collect();
    let mut rows = Vec::new();
    for ino in &inos {
        let dir = Attr { uid: *ino as u32 % 1000, ..dir_attr() };
        rows.push(Row::Node(Ino(*ino), dir));
        rows.push(entry_row(*ino, &name("child"), *ino));
        rows.push(entry_row(9, &name(&ino.to_string()), *ino));
        rows.push(Row::Chunk(Ino(*ino), 1, vec![Slice::whole(0, *ino, 4)]));
        rows.push(Row::DelFile(Ino(*ino), *ino % 100, 5));
        rows.push(Row::Sustained(3, Ino(*ino)));
        rows.push(Row::SliceRef(*ino, 4, 2));
        rows.push(Row::DirStat(Ino(*ino), DirStat { length: (*ino >> 1) as i64, space: 1, inodes: 1 }));
        rows.push(Row::Xattr(Ino(*ino), name("user.a"), Bytes::from(ino.to_string())));
    }
    let store = Store::with(factory, rows.clone());
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    for (at, ino) in inos.iter().enumerate() {
        let nlink = at as i32 + 1;
        store.write(vec![
            Write::Bump { ino: Ino(*ino), nlink, time: None },
            Write::Append(Ino(*ino), 1, vec![Slice::whole(0, *ino, 5)]),
            Write::Refer(*ino, 4, nlink.into()),
            Write::Use(Ino(*ino), DirStat { length: nlink.into(), space: 0, inodes: 0 }),
        ]);
    }
    for (at, ino) in inos.iter().enumerate() {
        let nlink = at as i64 + 1;
        let dir = Attr { uid: *ino as u32 % 1000, nlink: 2 + nlink as u32, ..dir_attr() };
        store.assert_row(&node(*ino), Some(&Row::Node(Ino(*ino), dir)));
        let chunk = Row::Chunk(Ino(*ino), 1, vec![Slice::whole(0, *ino, 4), Slice::whole(0, *ino, 5)]);
        store.assert_row(&chunk.key(), Some(&chunk));
        store.assert_row(&Key::SliceRef(*ino, 4), Some(&Row::SliceRef(*ino, 4, 2 + nlink)));
        let follow = store.read(&[Read::Follow(Ino(9), name(&ino.to_string()))]).remove(0);
        let entry = entry_row(9, &name(&ino.to_string()), *ino);
        assert_eq!(follow, Found::Rows(vec![entry, Row::Node(Ino(*ino), dir)]));
        let scan = Scan::Entries { dir: Ino(*ino), nodes: false };
        assert_eq!(store.scan(scan), [entry_row(*ino, &name("child"), *ino)]);
        let stat = DirStat { length: (*ino >> 1) as i64 + nlink, space: 1, inodes: 1 };
        store.assert_row(&Key::DirStat(Ino(*ino)), Some(&Row::DirStat(Ino(*ino), stat)));
    }
    let counters = [Counter::NextInode, Counter::NextChunk, Counter::UsedSpace];
    for counter in counters {
        store.write(vec![Write::Put(Row::Counter(counter, double as i64))]);
        for n in 1..4 {
            store.write(vec![Write::Count(counter, 1)]);
            store.assert_row(&Key::Counter(counter), Some(&Row::Counter(counter, double as i64 + n)));
        }
    }
}

/// The first and the last time of the format, the largest ids, the largest file.
pub fn times_and_owners_at_their_limits(factory: &Factory<'_>) {
    let last = Time { sec: 9_000_000_000, nsec: 999_999_999 };
    let plain = file_attr();
    let attrs = [
        Attr { atime: Time::default(), mtime: Time::default(), ctime: Time::default(), ..plain },
        Attr { atime: last, mtime: last, ctime: last, ..plain },
        Attr { atime: Time { sec: 0, nsec: 999_999_999 }, mtime: Time { sec: 0, nsec: 1 }, ..plain },
        Attr { mtime: Time { sec: 1, nsec: 999 }, ctime: Time { sec: 1, nsec: 1000 }, ..plain },
        Attr { uid: u32::MAX, gid: u32::MAX, ..plain },
        Attr { uid: u32::MAX - 1, gid: 1 << 31, ..plain },
        Attr { mode: 0, ..plain },
        Attr { mode: 0o7777, flags: AttrFlags(0xFF), tier: 3, ..plain },
        Attr { length: MAX_FILE_SIZE, nlink: i32::MAX as u32, ..plain },
        Attr { length: 0, nlink: 0, parent: Ino::NONE, ..plain },
        Attr { kind: FileType::Char, rdev: u32::MAX, ..plain },
        Attr { access_acl: u32::MAX - 1, default_acl: 0, ..plain },
        Attr { access_acl: 0, default_acl: i32::MAX as u32, parent: Ino(i64::MAX as u64), ..plain },
    ];
    let rows: Vec<Row> = attrs.iter().zip(100..).map(|(attr, ino)| Row::Node(Ino(ino), *attr)).collect();
    let store = Store::with(factory, rows.clone());
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    let held: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
    let expects = rows.iter().map(|row| Expect::Row(row.clone(), Hold::Lock)).collect();
    store.read_and_commit(&held, expects, vec![]).expect("nothing changed");
    // Raising by one nanosecond, over the edges of micro- and whole seconds.
    store.insert(vec![dir_row(50)]);
    let mut time = Time { sec: 1_800_000_000, nsec: 999 };
    for nsec in [999, 1000, 1001, 999_999_999] {
        time.nsec = nsec;
        store.write(vec![Write::Bump { ino: Ino(50), nlink: 0, time: Some(time) }]);
        store.assert_row(
            &node(50),
            Some(&Row::Node(Ino(50), Attr { mtime: time, ctime: time, ..dir_attr() })),
        );
    }
    let next = time.next();
    store.write(vec![Write::Bump { ino: Ino(50), nlink: 0, time: Some(next) }]);
    store.assert_row(&node(50), Some(&Row::Node(Ino(50), Attr { mtime: next, ctime: next, ..dir_attr() })));
}

/// Negative numbers, zeroes and the largest of each.
pub fn signs_and_zeroes(factory: &Factory<'_>) {
    let quota = Quota { max_space: -1, max_inodes: -1, used_space: 0, used_inodes: 0 };
    let full = Quota { max_space: i64::MAX, max_inodes: i64::MAX, used_space: -5, used_inodes: -6 };
    let rows = vec![
        Row::Quota(QuotaKey::User(u32::MAX), quota),
        Row::Quota(QuotaKey::Group(0), full),
        Row::Quota(QuotaKey::User(0), quota),
        Row::Quota(QuotaKey::Dir(Ino::ROOT), full),
        Row::DirStat(Ino(5), DirStat { length: -1, space: -4096, inodes: -3 }),
        Row::DirStat(Ino(6), DirStat::default()),
        Row::Counter(Counter::UsedSpace, -4096),
        Row::Counter(Counter::TotalInodes, 0),
        Row::Counter(Counter::LastCleanupFiles, i64::from(u32::MAX) * 4),
        Row::DelFile(Ino(7), 0, 1_700_000_000),
        Row::DelFile(Ino(8), MAX_FILE_SIZE, 1_700_000_000),
        Row::Chunk(Ino(7), (1 << 31) - 1, vec![Slice::hole(0, 1 << 26)]),
        Row::Plock(
            Ino(7),
            LockOwner { sid: 1, owner: 0 },
            vec![PlockRange { write: false, pid: 0, start: 0, end: 0 }],
        ),
        Row::Symlink(Ino(9), Bytes::from_static(b"\xff\xfe")),
    ];
    let store = Store::with(factory, rows.clone());
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    let used = Quota { used_space: i64::MAX - 5, ..full };
    store.write(vec![Write::Charge(QuotaKey::Dir(Ino::ROOT), i64::MAX, 0)]);
    store
        .assert_row(&Key::Quota(QuotaKey::Dir(Ino::ROOT)), Some(&Row::Quota(QuotaKey::Dir(Ino::ROOT), used)));
}
