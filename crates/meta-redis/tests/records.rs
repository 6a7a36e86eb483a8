//! Records on a real server: those that JuiceFS wrote are understood, and ours have the same bytes.

mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use redis::{Commands, Connection};
use server::Server;
use sluice_meta::{
    engine::{Commit, Engine, Found, Hold, List, Read, Scan, Write},
    schema::{
        Counter, DirStat, Entry, FlockKind, Key, LockOwner, Quota, QuotaKey, Row, Session, SessionInfo,
        VolumeFormat,
    },
};
use sluice_meta_redis::RedisEngine;
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

/// A volume of JuiceFS 1.4.1 in database 1.
fn juicefs() -> Server {
    Server::with_dump(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/redisvol.rdb"))
}

fn scan(engine: &RedisEngine, scan: Scan, limit: usize) -> Vec<Row> {
    let (mut rows, mut from) = (Vec::new(), None);
    loop {
        let page = engine.scan(scan, from.as_ref(), limit).expect("a page");
        rows.extend(page.rows);
        match page.next {
            Some(next) => from = Some(next),
            None => return rows,
        }
    }
}

fn get(engine: &RedisEngine, key: Key) -> Option<Row> {
    match engine.read(&[Read::Get(key)]).expect("read").pop() {
        Some(Found::Row(row)) => row,
        other => panic!("{other:?}"),
    }
}

fn all(engine: &RedisEngine, list: List) -> Vec<Row> {
    match engine.read(&[Read::All(list)]).expect("read").pop() {
        Some(Found::Rows(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

fn write(engine: &RedisEngine, writes: Vec<Write>) {
    engine.commit(&Commit { writes, ..Commit::default() }).expect("commit");
}

/// Every path below the root with its node, found by listing directories.
fn walk(engine: &RedisEngine) -> BTreeMap<Vec<u8>, (Ino, Attr)> {
    let mut found = BTreeMap::new();
    let mut left = vec![(Vec::new(), Ino::ROOT)];
    while let Some((path, dir)) = left.pop() {
        let rows = scan(engine, Scan::Entries { dir, nodes: true }, 3);
        for pair in rows.chunks(2) {
            let [Row::Entry(of, name, entry), Row::Node(ino, attr)] = pair else { panic!("{pair:?}") };
            assert_eq!((*of, entry.ino, entry.kind), (dir, *ino, attr.kind));
            let path = [&path[..], b"/", name].concat();
            if attr.is_dir() {
                left.push((path.clone(), *ino));
            }
            found.insert(path, (*ino, *attr));
        }
    }
    found
}

fn nanos(value: &serde_json::Value) -> Time {
    Time::from_nanos(value.as_i64().expect("a number"))
}

#[test]
fn the_tree_that_juicefs_wrote_is_the_one_of_its_manifest() {
    let server = juicefs();
    let engine = server.engine(1);
    let found = walk(&engine);
    let manifest: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("fixtures/redisvol-manifest.json")).expect("JSON");
    assert_eq!(found.len(), manifest.len());
    for entry in &manifest {
        let path = hex::decode(entry["path_hex"].as_str().expect("text")).expect("hex");
        let (ino, attr) = found[&path];
        assert_eq!(ino.0, entry["ino"], "{entry}");
        assert_eq!(
            format!("{:#o}", attr.st_mode()),
            entry["mode"].as_str().expect("text").replace("0o0", "0o")
        );
        assert_eq!(
            (attr.uid, attr.gid),
            (entry["uid"].as_u64().map_or(0, |n| n as u32), entry["gid"].as_u64().map_or(0, |n| n as u32))
        );
        assert_eq!(
            (u64::from(attr.nlink), attr.length),
            (entry["nlink"].as_u64().expect("n"), entry["size"].as_u64().expect("n"))
        );
        assert_eq!((attr.mtime, attr.ctime), (nanos(&entry["mtime_ns"]), nanos(&entry["ctime_ns"])));
        if let Some(target) = entry["target"].as_str() {
            assert_eq!(get(&engine, Key::Symlink(ino)), Some(Row::Symlink(ino, target.to_owned().into())));
        }
        for (name, value) in entry["xattrs_hex"].as_object().into_iter().flatten() {
            if name.starts_with("user.") {
                let name = Name::stored(name.as_bytes());
                let value = hex::decode(value.as_str().expect("text")).expect("hex");
                let row = Row::Xattr(ino, name, value.into());
                assert_eq!(get(&engine, row.key()), Some(row.clone()));
                assert!(all(&engine, List::Xattrs(ino)).contains(&row));
            }
        }
    }
}

#[test]
fn single_records_that_juicefs_wrote() {
    let server = juicefs();
    let engine = server.engine(1);
    for (counter, value) in [
        (Counter::NextInode, 1025),
        (Counter::NextChunk, 4097),
        (Counter::NextTrash, 1),
        (Counter::AclMaxId, 3),
        (Counter::UsedSpace, 230_207_488),
        (Counter::TotalInodes, 50),
        (Counter::LastCleanupSessions, 1_795_288_076),
    ] {
        assert_eq!(get(&engine, Key::Counter(counter)), Some(Row::Counter(counter, value)));
    }
    let Some(Row::Setting(json)) = get(&engine, Key::Setting) else { panic!("no setting") };
    let format = VolumeFormat::parse(&json).expect("settings");
    assert_eq!((format.name.as_str(), format.block_size, format.trash_days), ("redisvol", 4096, 1));
    let hour = Ino(Ino::TRASH.0 + 1);
    let parents: BTreeSet<u64> = all(&engine, List::Parents(Ino(11)))
        .into_iter()
        .map(|row| if let Row::Parents(Ino(11), parent, 1) = row { parent.0 } else { panic!("{row:?}") })
        .collect();
    assert_eq!(parents, BTreeSet::from([1, 2, hour.0]), "trash inodes are exact");
    let quota = Quota { max_space: 1 << 30, max_inodes: 100, used_space: 12_288, used_inodes: 2 };
    assert!(scan(&engine, Scan::Quotas, 10).contains(&Row::Quota(QuotaKey::Dir(Ino(30)), quota)));
    assert_eq!(
        scan(&engine, Scan::DelSlices, 10),
        [Row::DelSlices(
            35,
            1_795_288_072,
            vec![(14, 30_000), (15, 30_000), (16, 100), (17, 5000), (18, 1000)]
        )]
    );
    assert_eq!(get(&engine, Key::SliceRef(11, 100_000)), Some(Row::SliceRef(11, 100_000, 3)));
    assert_eq!(get(&engine, Key::SliceRef(19, 5)), None, "one reference is no record");
    let Some(Row::DirStat(_, stat)) = get(&engine, Key::DirStat(Ino(2))) else { panic!("no usage") };
    assert_eq!((stat.length, stat.inodes), (36, 5));
    let Some(Row::Chunk(_, _, slices)) = get(&engine, Key::Chunk(Ino(14), 0)) else { panic!("no chunk") };
    assert_eq!(slices[1], Slice::whole(0x03FF_FC18, 8, 1000));
    assert_eq!(all(&engine, List::Chunks(Ino(14), 0, 3)).len(), 3);
    assert_eq!(all(&engine, List::Chunks(Ino(14), 1, 2)).len(), 1);
    let trashed = scan(&engine, Scan::Entries { dir: hour, nodes: true }, 100);
    assert!(trashed.len() > 2, "the trash has entries with nodes: {trashed:?}");
}

/// Type and content of every key.
fn content(connection: &mut Connection) -> BTreeMap<String, Vec<String>> {
    let keys: Vec<String> = connection.keys("*").expect("keys");
    let mut out = BTreeMap::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query(connection).expect("type");
        let command = match kind.as_str() {
            "string" => redis::cmd("GET").arg(&key).to_owned(),
            "hash" => redis::cmd("HGETALL").arg(&key).to_owned(),
            "list" => redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).to_owned(),
            "set" => redis::cmd("SMEMBERS").arg(&key).to_owned(),
            _ => redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES").to_owned(),
        };
        let value: redis::Value = command.query(connection).expect("content");
        let mut texts: Vec<String> = match value {
            redis::Value::Array(items) => items.iter().map(|item| format!("{item:?}")).collect(),
            other => vec![format!("{other:?}")],
        };
        if kind == "hash" {
            texts = texts.chunks(2).map(|pair| pair.join("=")).collect();
        }
        if kind != "list" {
            texts.sort();
        }
        out.insert(format!("{kind} {key}"), texts);
    }
    out
}

#[test]
fn a_volume_copied_record_by_record_has_the_same_bytes() {
    let server = juicefs();
    let (from, to) = (server.engine(1), server.engine(2));
    let mut rows = Vec::new();
    for kind in [
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
    ] {
        rows.extend(scan(&from, kind, 7));
    }
    let inos: Vec<Ino> =
        rows.iter().filter_map(|row| if let Row::Node(ino, _) = row { Some(*ino) } else { None }).collect();
    assert!(inos.len() > 50);
    for ino in inos {
        rows.extend(all(&from, List::Xattrs(ino)));
        rows.extend(all(&from, List::Parents(ino)));
        rows.extend(get(&from, Key::Symlink(ino)));
    }
    rows.extend(Counter::ALL.into_iter().filter_map(|counter| get(&from, Key::Counter(counter))));
    rows.extend(get(&from, Key::Setting));
    // Redis may return a record twice while it scans.
    let mut seen = Vec::new();
    rows.retain(|row| {
        let fresh = !seen.contains(&row.key());
        seen.push(row.key());
        fresh
    });
    write(&to, rows.into_iter().map(Write::Insert).collect());
    let theirs = content(&mut server.connection(1).expect("up"));
    let ours = content(&mut server.connection(2).expect("up"));
    assert_eq!(theirs, ours);
}

#[test]
fn the_bytes_of_what_we_write() {
    let server = Server::start();
    let engine = server.engine(5);
    let mut raw = server.connection(5).expect("up");
    let attr = Attr {
        atime: Time { sec: 1_700_000_000, nsec: 123_456_789 },
        mtime: Time { sec: 1_600_000_000, nsec: 987_654_321 },
        ctime: Time { sec: 1_795_288_066, nsec: 855_026_001 },
        length: 13,
        ..Attr::new(FileType::File, 0o644, 0, 0, Ino(2), Time::default())
    };
    let owner = LockOwner { sid: 9, owner: 0xABCD };
    let trash = Ino(Ino::TRASH.0 + 1);
    write(
        &engine,
        vec![
            Write::Insert(Row::Node(Ino(5), attr)),
            Write::Insert(Row::Entry(
                Ino(2),
                Name::stored(b"a\xff"),
                Entry { kind: FileType::File, ino: trash },
            )),
            Write::Insert(Row::SliceRef(7, 100, 1)),
            Write::Insert(Row::SliceRef(8, 100, 4)),
            Write::Insert(Row::DelFile(trash, 13, 1_795_288_066)),
            Write::Insert(Row::Flock(Ino(5), owner, FlockKind::Read)),
            Write::Insert(Row::Sustained(9, trash)),
            Write::Insert(Row::DirStat(Ino(2), DirStat { length: 1, space: 4096, inodes: -1 })),
            Write::Insert(Row::Counter(Counter::NextInode, 1025)),
            Write::Count(Counter::NextChunk, 4096),
            Write::Append(Ino(5), 3, vec![Slice::whole(0, 4, 13), Slice::hole(13, 1)]),
            Write::Insert(Row::Session(
                9,
                Session { expire: 60, info: Some(SessionInfo::default().to_json()) },
            )),
        ],
    );
    let vector = "0011a40000000000000000000000006553f100075bcd15000000005f5e10003ade68b1000000006b01ec0232f6a95100000001000000000000000d00000000000000000000000200";
    let node: Vec<u8> = raw.get("i5").expect("there");
    assert_eq!(hex::encode(node), vector);
    let entry: Vec<u8> = raw.hget("d2", b"a\xff").expect("there");
    assert_eq!(hex::encode(entry), "017fffffff10000001");
    let refs: BTreeMap<String, String> = raw.hgetall("sliceRef").expect("there");
    assert_eq!(refs, BTreeMap::from([("k8_100".into(), "3".into())]), "one reference is no field");
    let gone: Vec<(String, i64)> = raw.zrange_withscores("delfiles", 0, -1).expect("there");
    assert_eq!(gone, [("9223372032828243969:13".to_owned(), 1_795_288_066)]);
    let lock: String = raw.hget("lockf5", "9_000000000000ABCD").expect("there");
    assert_eq!(lock, "R");
    let index: Vec<String> = raw.smembers("locked9").expect("there");
    assert_eq!(index, ["lockf5"], "shared locks are in the index too");
    let open: Vec<String> = raw.smembers("session9").expect("there");
    assert_eq!(open, ["9223372032828243969"]);
    for (hash, wanted) in [("dirDataLength", "1"), ("dirUsedSpace", "4096"), ("dirUsedInodes", "-1")] {
        let value: String = raw.hget(hash, "2").expect("there");
        assert_eq!(value, wanted);
    }
    let counters: (String, String) = raw.mget(&["nextinode", "nextchunk"]).expect("there");
    assert_eq!(counters, ("1024".into(), "4096".into()), "the last numbers given out");
    let records: Vec<Vec<u8>> = raw.lrange("c5_3", 0, -1).expect("there");
    assert_eq!(records.len(), 2, "one element per record");
    assert_eq!(hex::encode(&records[0]), "0000000000000000000000040000000d000000000000000d");
    let expiry: f64 = raw.zscore("allSessions", 9).expect("there");
    assert!((expiry - 60.0).abs() < 0.1);

    write(
        &engine,
        vec![Write::Refer(8, 100, -3), Write::Refer(7, 100, -1), Write::Delete(Key::Flock(Ino(5), owner))],
    );
    let refs: BTreeMap<String, String> = raw.hgetall("sliceRef").expect("there");
    assert_eq!(refs, BTreeMap::from([("k7_100".into(), "-1".into())]), "back to one reference is no field");
    let left: Vec<String> = raw.keys("lock*").expect("there");
    assert_eq!(left, Vec::<String>::new(), "the index goes with the last lock");
}

#[test]
fn numbers_missing_from_a_new_volume_are_the_first() {
    let server = Server::start();
    let engine = server.engine(0);
    for counter in [Counter::NextInode, Counter::NextChunk] {
        assert_eq!(get(&engine, Key::Counter(counter)), Some(Row::Counter(counter, 1)));
    }
    assert_eq!(get(&engine, Key::Counter(Counter::UsedSpace)), None);
}

/// A record that others spelled differently can be locked and replaced.
#[test]
fn settings_in_the_words_of_others_are_replaced() {
    let server = juicefs();
    let engine = server.engine(1);
    let found = engine.read(&[Read::Get(Key::Setting)]).expect("read").pop();
    let Some(Found::Row(Some(Row::Setting(json)))) = found else { panic!("no setting") };
    let format = VolumeFormat::parse(&json).expect("settings");
    let commit = Commit {
        expects: vec![sluice_meta::engine::Expect::Row(Row::Setting(json), Hold::Lock)],
        writes: vec![Write::Put(Row::setting(&VolumeFormat { trash_days: 7, ..format }))],
        step: None,
    };
    engine.commit(&commit).expect("unchanged");
    assert!(engine.commit(&commit).is_err(), "changed meanwhile");
}
