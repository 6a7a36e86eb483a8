//! Volumes that JuiceFS wrote, and files that are none.

mod support;

use std::{fs, os::unix::fs::PermissionsExt};

use sluice_meta::{
    engine::{Engine, EngineError, Found, List, Read, Scan, Write},
    schema::{Counter, Extra, FlockKind, Key, LockOwner, QuotaKey, Row, VolumeFormat},
};
use sluice_meta_sql::SqliteEngine;
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Time};
use support::{commit, fixture, get, rows, scan, url};

fn node(row: Option<Row>) -> Attr {
    match row {
        Some(Row::Node(_, attr)) => attr,
        other => panic!("no node but {other:?}"),
    }
}

#[test]
fn a_volume_of_juicefs_is_read_as_it_was_written() {
    let (_dir, engine) = fixture("main");
    match get(&engine, Key::Setting) {
        Some(Row::Setting(json)) => {
            let format = VolumeFormat::parse(&json).expect("settings");
            assert_eq!(format.name, "main");
            assert_eq!(format.min_client_version, "1.2.0-A");
            assert!(format.enable_acl && format.dir_stats);
        }
        other => panic!("no settings but {other:?}"),
    }
    let counter = |counter| get(&engine, Key::Counter(counter));
    assert_eq!(counter(Counter::NextInode), Some(Row::Counter(Counter::NextInode, 1026)));
    assert_eq!(counter(Counter::UsedSpace), Some(Row::Counter(Counter::UsedSpace, 230_207_488)));
    assert_eq!(counter(Counter::LastCleanupFiles), None);
    assert_eq!(counter(Counter::AclMaxId), Some(Row::Counter(Counter::AclMaxId, 3)));
    // JuiceFS makes no table for what only Sluice stores.
    assert_eq!(get(&engine, Key::Extra(Extra::GroupVersion, 0)), None);
    assert_eq!(rows(&engine, Read::All(List::Extras(Extra::Member))), []);
    let file = node(get(&engine, Key::Node(Ino(5))));
    assert_eq!(file.atime, Time { sec: 1_700_000_000, nsec: 123_456_789 });
    assert_eq!(file.mtime, Time { sec: 1_600_000_000, nsec: 987_654_321 });
    assert_eq!((file.kind, file.mode, file.length, file.parent), (FileType::File, 0o644, 13, Ino(2)));
    let device = node(get(&engine, Key::Node(Ino(26))));
    assert_eq!((device.kind, device.rdev), (FileType::Block, 1992));
    assert_eq!(node(get(&engine, Key::Node(Ino(21)))).flags, AttrFlags(AttrFlags::SKIP_TRASH));
    // A file of three names, one of them in the trash.
    assert_eq!(node(get(&engine, Key::Node(Ino(11)))).parent, Ino::NONE);
    assert_eq!(rows(&engine, Read::All(List::Parents(Ino(11)))).len(), 3);
    let xattrs = rows(&engine, Read::All(List::Xattrs(Ino(12))));
    assert!(
        matches!(&xattrs[..], [Row::Xattr(_, _, a), Row::Xattr(_, _, b)] if a.len() == 52 && &b[..] == b"value1")
    );
    let quota = get(&engine, Key::Quota(QuotaKey::Dir(Ino(30))));
    assert!(
        matches!(quota, Some(Row::Quota(_, q)) if (q.max_space, q.max_inodes, q.used_inodes) == (1 << 30, 100, 2))
    );
    match get(&engine, Key::Acl(1)) {
        Some(Row::Acl(_, rule)) => {
            assert_eq!((rule.owner, rule.group, rule.mask, rule.other), (6, 4, 6, 4));
        }
        other => panic!("no rule but {other:?}"),
    }
}

#[test]
fn every_row_of_a_volume_of_juicefs_is_understood() {
    for name in ["main", "lz4vol", "dirty"] {
        let (_dir, engine) = fixture(name);
        engine.prepare().expect("prepare");
        let nodes = scan(&engine, Scan::Nodes, 10);
        let entries = scan(&engine, Scan::AllEntries, 10);
        assert!(entries.len() > 50 || name == "dirty", "{name}");
        for row in &entries {
            let Row::Entry(dir, entry_name, entry) = row else { panic!("no entry but {row:?}") };
            let followed = rows(&engine, Read::Follow(*dir, entry_name.clone()));
            assert_eq!(&followed[0], row);
            assert!(nodes.contains(&followed[1]), "{name}: {followed:?}");
            assert_eq!(node(followed.get(1).cloned()).kind, entry.kind);
        }
        for row in &nodes {
            if let Row::Node(ino, attr) = row
                && attr.kind == FileType::Symlink
            {
                match get(&engine, Key::Symlink(*ino)) {
                    Some(Row::Symlink(_, target)) => assert_eq!(target.len() as u64, attr.length),
                    other => panic!("no target but {other:?}"),
                }
            }
        }
        let refs = scan(&engine, Scan::SliceRefs, 10);
        for chunk in scan(&engine, Scan::Chunks, 10) {
            let Row::Chunk(_, _, slices) = chunk else { panic!("no chunk but {chunk:?}") };
            for slice in slices.iter().filter(|slice| !slice.is_hole()) {
                let key = Key::SliceRef(slice.id, slice.size);
                assert!(refs.iter().any(|row| row.key() == key), "{name}: {key:?}");
            }
        }
        for kind in [
            Scan::DelFiles,
            Scan::DelSlices,
            Scan::Sessions,
            Scan::Sustained,
            Scan::Detached,
            Scan::Acls,
            Scan::DirStats,
            Scan::Quotas,
            Scan::Writers,
        ] {
            scan(&engine, kind, 7);
        }
    }
}

#[test]
fn what_a_killed_client_left_is_read() {
    let (_dir, engine) = fixture("dirty");
    let owner = |sid, owner| LockOwner { sid, owner };
    let write = Row::Flock(Ino(2), owner(1, 8_530_944_052_115_483_844), FlockKind::Write);
    let read = Row::Flock(Ino(3), owner(1, -8_761_603_621_511_139_672_i64 as u64), FlockKind::Read);
    let locks = rows(&engine, Read::All(List::LocksOf(1)));
    assert_eq!(locks[..2], [write, read]);
    match &locks[2..] {
        [Row::Plock(Ino(4), _, ranges)] => {
            assert_eq!((ranges[0].write, ranges[0].start, ranges[0].end), (true, 1000, 1099));
            assert_eq!(
                (ranges[1].write, ranges[1].pid, ranges[1].end),
                (false, 0x25C1, 0x7FFF_FFFF_FFFF_FFFF)
            );
        }
        other => panic!("no POSIX lock but {other:?}"),
    }
    assert_eq!(rows(&engine, Read::All(List::Sustained(1))), [Row::Sustained(1, Ino(5))]);
    assert_eq!(scan(&engine, Scan::DelFiles, 100).len(), 296);
    match &scan(&engine, Scan::Sessions, 100)[..] {
        [Row::Session(1, session)] => assert!(session.who().is_some()),
        other => panic!("no session but {other:?}"),
    }
}

#[test]
fn an_old_volume_gets_what_it_lacks_and_keeps_what_it_has() {
    let (dir, engine) = fixture("main");
    let hand = rusqlite::Connection::open(dir.path().join("volume.db")).expect("open");
    hand.execute_batch(
        "DROP TABLE jfs_acl; DROP TABLE jfs_detached_node; DROP INDEX IDX_jfs_edge_inode; \
         ALTER TABLE jfs_node DROP COLUMN tier_id; ALTER TABLE jfs_node DROP COLUMN mtimensec; \
         ALTER TABLE jfs_node ADD COLUMN theirs TEXT DEFAULT 'kept'; UPDATE jfs_node SET rdev=NULL, parent=NULL",
    )
    .expect("age");
    engine.prepare().expect("prepare");
    engine.prepare().expect("again");
    let attr = node(get(&engine, Key::Node(Ino(5))));
    assert_eq!((attr.tier, attr.rdev, attr.parent, attr.mtime.nsec % 1000), (0, 0, Ino::NONE, 0));
    commit(&engine, vec![Write::Put(Row::Node(Ino(5), Attr { tier: 2, ..attr }))]).expect("put");
    assert_eq!(node(get(&engine, Key::Node(Ino(5)))).tier, 2);
    let kept: String = hand
        .query_row("SELECT theirs FROM jfs_node WHERE inode=5", [], |row| row.get(0))
        .expect("their column");
    assert_eq!(kept, "kept");
    let indexes: i64 = hand
        .query_row("SELECT count(*) FROM sqlite_master WHERE name='IDX_jfs_edge_inode'", [], |row| row.get(0))
        .expect("count");
    assert_eq!(indexes, 1);
}

#[test]
fn volumes_share_a_database_by_their_prefixes() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = url(&dir.path().join("volume.db"));
    let volumes = ["", "?table_prefix=x", "?table_prefix=sluice_jfs"].map(|option| {
        let engine = SqliteEngine::open(&format!("{plain}{option}")).expect("open");
        engine.prepare().expect("prepare");
        engine
    });
    let row = Row::Sustained(1, Ino(2));
    commit(&volumes[0], vec![Write::Insert(row.clone())]).expect("insert");
    assert_eq!(get(&volumes[0], row.key()), Some(row.clone()));
    assert_eq!(get(&volumes[1], row.key()), None);
    commit(&volumes[1], vec![Write::Insert(row), Write::Insert(Row::Writer(1, 0, 0))]).expect("insert");
    assert_eq!(get(&volumes[0], Key::Writer(1, 0)), None);
    let other = Row::Writer(1, 0, 7);
    commit(&volumes[2], vec![Write::Insert(other.clone())]).expect("insert");
    assert_eq!(get(&volumes[2], other.key()), Some(other));
    sluice_testkit::conformance::logs::logs_are_apart(&volumes);
}

#[test]
fn a_wrong_path_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |path: &str| match SqliteEngine::open(&url(&dir.path().join(path))).map(|e| e.prepare()) {
        Err(EngineError::Refused { reason, .. }) | Ok(Err(EngineError::Refused { reason, .. })) => reason,
        Err(error) => panic!("{path}: {error}"),
        Ok(done) => panic!("{path}: {done:?}"),
    };
    assert!(refused("no/such/volume.db").contains("no directory"));
    fs::write(dir.path().join("text"), "this is a text and no database; ".repeat(100)).expect("write");
    assert!(refused("text").contains("not an SQLite database"));
    fs::create_dir(dir.path().join("dir")).expect("mkdir");
    assert!(refused("dir").contains("directory"));
    let missing = SqliteEngine::open(&url(&dir.path().join("typo.db"))).expect("open");
    assert_eq!(missing.read(&[Read::Get(Key::Setting)]).expect("read"), [Found::Row(None)]);
    assert!(matches!(missing.read(&[Read::Get(Key::Node(Ino(1)))]), Err(EngineError::Refused { .. })));
    assert!(matches!(commit(&missing, vec![]), Err(EngineError::Refused { .. })));
    assert!(!dir.path().join("typo.db").exists());
    // An empty database is no volume either.
    rusqlite::Connection::open(dir.path().join("empty.db"))
        .and_then(|c| c.execute_batch("VACUUM"))
        .expect("empty");
    let empty = SqliteEngine::open(&url(&dir.path().join("empty.db"))).expect("open");
    assert_eq!(empty.read(&[Read::Get(Key::Setting)]).expect("read"), [Found::Row(None)]);
    match empty.read(&[Read::Follow(Ino(1), Name::stored(b"a"))]) {
        Err(EngineError::Refused { reason, .. }) => assert!(reason.contains("sluice format"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let (dir, engine) = fixture("main");
    drop(engine);
    let path = dir.path().join("volume.db");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("chmod");
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return; // The superuser may write everywhere.
    }
    match SqliteEngine::open(&url(&path)) {
        Err(EngineError::Refused { reason, .. }) => assert!(reason.contains("read-only"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
}
