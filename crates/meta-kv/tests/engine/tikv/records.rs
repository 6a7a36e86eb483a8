//! Records on a real server: those that JuiceFS wrote are understood, and ours have the same bytes.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
};

use flate2::read::GzDecoder;
use sluice_meta::{
    engine::{Commit, Engine, Found, List, Moment, Read, Scan, Step, Write},
    schema::{
        Counter, DirStat, Entry, FlockKind, Key, LockOwner, PlockRange, Quota, QuotaKey, Row, Session,
        SessionInfo,
    },
};
use sluice_meta_kv::TikvEngine;
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

use super::server::{self, raw::Raw};

/// The pairs of a volume of JuiceFS 1.4.1, keys without their prefix.
fn fixture() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let zipped = &include_bytes!("fixtures/tikvvol.tsv.gz")[..];
    let lines = BufReader::new(GzDecoder::new(zipped)).lines();
    let pair = |line: Result<String, std::io::Error>| {
        let line = line.expect("a line");
        let (key, value) = line.split_once('\t').expect("two columns");
        let key = hex::decode(key).expect("hex");
        let key = key.strip_prefix(b"jfs/tk1\xfd").expect("its prefix").to_vec();
        (key, hex::decode(value).expect("hex"))
    };
    lines.map(pair).collect()
}

/// A volume of JuiceFS under a prefix of its own.
fn juicefs() -> TikvEngine {
    let url = server::fresh_url();
    Raw::new(&url).put(&fixture().into_iter().collect::<Vec<_>>());
    server::open(&url)
}

fn scan(engine: &TikvEngine, scan: Scan, limit: usize) -> Vec<Row> {
    let (mut rows, mut from) = (Vec::new(), None);
    loop {
        let page = engine.scan(scan, from.as_ref(), limit).expect("a page").sound().expect("sound");
        rows.extend(page.rows);
        match page.next {
            Some(next) => from = Some(next),
            None => return rows,
        }
    }
}

fn get(engine: &TikvEngine, key: Key) -> Option<Row> {
    match engine.read(&[Read::Get(key)]).expect("read").pop() {
        Some(Found::Row(row)) => row,
        other => panic!("{other:?}"),
    }
}

fn all(engine: &TikvEngine, list: List) -> Vec<Row> {
    match engine.read(&[Read::All(list)]).expect("read").pop() {
        Some(Found::Rows(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

fn write(engine: &TikvEngine, writes: Vec<Write>) {
    engine.commit(&Commit { writes, ..Commit::default() }).expect("commit");
}

/// Every path below the root with its node, found by listing directories.
fn walk(engine: &TikvEngine) -> BTreeMap<Vec<u8>, (Ino, Attr)> {
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
    let engine = juicefs();
    let found = walk(&engine);
    let manifest: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("fixtures/tikvvol-manifest.json")).expect("JSON");
    assert_eq!(found.len(), manifest.len());
    for entry in &manifest {
        let path = hex::decode(entry["path_hex"].as_str().expect("text")).expect("hex");
        let (ino, attr) = found[&path];
        let number = |name: &str| entry[name].as_u64().unwrap_or_default();
        assert_eq!(ino.0, number("ino"), "{entry}");
        let mode = entry["mode"].as_str().expect("text").replace("0o0", "0o");
        assert_eq!(format!("{:#o}", attr.st_mode()), mode);
        assert_eq!((u64::from(attr.uid), u64::from(attr.gid)), (number("uid"), number("gid")));
        assert_eq!((u64::from(attr.nlink), attr.length), (number("nlink"), number("size")));
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

/// All records of a volume, by every way there is to find one.
fn records(engine: &TikvEngine) -> Vec<Row> {
    let mut rows: Vec<Row> = get(engine, Key::Setting).into_iter().collect();
    rows.extend(Counter::ALL.into_iter().filter_map(|counter| get(engine, Key::Counter(counter))));
    for kind in [
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
    ] {
        rows.extend(scan(engine, kind, 7));
    }
    for row in scan(engine, Scan::Nodes, 7) {
        let Row::Node(ino, _) = row else { panic!("{row:?}") };
        rows.push(row);
        rows.extend(get(engine, Key::Symlink(ino)));
        for list in [List::Xattrs(ino), List::Parents(ino), List::Flocks(ino), List::Plocks(ino)] {
            rows.extend(all(engine, list));
        }
    }
    rows
}

#[test]
fn what_juicefs_wrote_is_written_byte_for_byte() {
    let rows = records(&juicefs());
    let url = server::fresh_url();
    let copy = server::open(&url);
    write(&copy, rows.into_iter().map(Write::Insert).collect());
    let mut copied = Raw::new(&url).all();
    let mut original = fixture();
    // The settings are spelled in another way.
    let settings = [&mut copied, &mut original].map(|pairs| pairs.remove(&b"setting"[..]).expect("settings"));
    let [ours, theirs] =
        settings.map(|text| serde_json::from_slice::<serde_json::Value>(&text).expect("JSON"));
    assert_eq!(ours["UUID"], theirs["UUID"]);
    // Counts that have fallen to nothing stand for no record.
    original.retain(|key, value| !(key.get(9) == Some(&b'P') && key.len() == 18 && value == &[0; 8]));
    for (key, value) in &original {
        assert_eq!(copied.get(key), Some(value), "{}", key.escape_ascii());
    }
    assert_eq!(copied.len(), original.len(), "nothing more than that");
}

#[test]
fn keys_and_values_are_those_of_the_format() {
    let url = server::fresh_url();
    let engine = server::open(&url);
    let attr = Attr::new(FileType::Dir, 0o755, 1, 2, Ino(0x0203), Time { sec: 3, nsec: 4 });
    let owner = |sid| LockOwner { sid, owner: 0x0A0B };
    let range = PlockRange { write: true, pid: 7, start: 8, end: 9 };
    let info = SessionInfo { version: "1".into(), ..SessionInfo::default() };
    let quota = Quota { max_space: 1, max_inodes: 2, used_space: 3, used_inodes: -1 };
    let rows = vec![
        Row::Counter(Counter::NextInode, 0x402),
        Row::Counter(Counter::LastCleanupFiles, 0x0102),
        Row::Entry(Ino(0x0102), Name::stored(b"n"), Entry { kind: FileType::File, ino: Ino(5) }),
        Row::Parents(Ino(1), Ino(2), 3),
        Row::Chunk(Ino(1), 0x0102, vec![Slice::whole(1, 2, 3)]),
        Row::SliceRef(0x0102, 3, 2),
        Row::DelFile(Ino(0x0102), 3, 4),
        Row::DelSlices(0x0102, 3, vec![(4, 5)]),
        Row::DirStat(Ino(0x0102), DirStat { length: 1, space: 2, inodes: 3 }),
        Row::Quota(QuotaKey::User(7), quota),
        Row::Session(9, Session { expire: 5, info: Some(info.to_json()) }),
        Row::Sustained(9, Ino(0x0102)),
        Row::Flock(Ino(0x0102), owner(1), FlockKind::Write),
        Row::Flock(Ino(0x0102), owner(2), FlockKind::Read),
        Row::Plock(Ino(0x0102), owner(1), vec![range]),
        Row::Xattr(Ino(1), Name::stored(b"user.e"), bytes::Bytes::new()),
        Row::Detached(Ino(0x0102), 6),
        Row::Writer(0x0102, 3, 4),
        Row::Node(Ino(0x0102), attr),
    ];
    write(&engine, rows.into_iter().map(Write::Insert).collect());
    let stored = Raw::new(&url).all();
    let value = |key: &[u8]| stored.get(key).unwrap_or_else(|| panic!("no {}", key.escape_ascii())).clone();
    let numbers = |all: &[i64]| all.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    assert_eq!(value(b"CnextInode"), 0x402_i64.to_le_bytes());
    assert_eq!(value(b"ClastCleanupFiles"), 0x0102_i64.to_be_bytes());
    assert_eq!(value(b"A\x02\x01\0\0\0\0\0\0Dn"), b"\x01\0\0\0\0\0\0\0\x05");
    assert_eq!(value(b"A\x01\0\0\0\0\0\0\0P\x02\0\0\0\0\0\0\0"), 3_i64.to_le_bytes());
    assert_eq!(value(b"A\x01\0\0\0\0\0\0\0C\0\0\x01\x02").len(), 24);
    assert_eq!(value(b"K\0\0\0\0\0\0\x01\x02\0\0\0\x03"), 1_i64.to_le_bytes());
    assert_eq!(value(b"D\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x03"), numbers(&[4]));
    assert_eq!(value(b"L\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02"), b"\0\0\0\0\0\0\0\x04\0\0\0\x05");
    assert_eq!(value(b"U\x02\x01\0\0\0\0\0\0"), numbers(&[1, 2, 3]));
    assert_eq!(value(b"QU\0\0\0\0\0\0\0\x07"), numbers(&[1, 2, 3, -1]));
    assert_eq!(value(b"SE\0\0\0\0\0\0\0\x09"), numbers(&[5]));
    assert!(value(b"SI\0\0\0\0\0\0\0\x09").starts_with(b"{\"Version\":\"1\""));
    assert_eq!(value(b"SS\0\0\0\0\0\0\0\x09\x02\x01\0\0\0\0\0\0"), [1]);
    let flocks = [&numbers(&[1, 0x0A0B])[..], b"W", &numbers(&[2, 0x0A0B]), b"R"].concat();
    assert_eq!(value(b"F\x02\x01\0\0\0\0\0\0"), flocks);
    let plocks =
        [&numbers(&[1, 0x0A0B])[..], b"\0\0\0\x18", b"\0\0\0\x01\0\0\0\x07", &numbers(&[8, 9])].concat();
    assert_eq!(value(b"P\x02\x01\0\0\0\0\0\0"), plocks);
    assert_eq!(value(b"A\x01\0\0\0\0\0\0\0Yuser.e"), [1], "TiKV keeps no empty values");
    assert_eq!(value(b"N\x02\x01\0\0\0\0\0\0"), numbers(&[6]));
    assert_eq!(value(b"XSW\0\0\0\0\0\0\x01\x02\0\x03"), numbers(&[4, 0, 0]));
    assert_eq!(value(b"A\x02\x01\0\0\0\0\0\0I").len(), 72);
    assert_eq!(stored.len(), 19);
    assert!(stored.values().all(|value| !value.is_empty()));
}

/// The totals are right at every moment, wherever their parts are; removing a writer's records
/// leaves none behind.
#[test]
fn totals_ride_with_the_writer_until_they_are_folded() {
    let url = server::fresh_url();
    let engine = server::open(&url);
    let stored = || Raw::new(&url).all().get(&b"CusedSpace"[..]).cloned();
    let used = || get(&engine, Key::Counter(Counter::UsedSpace));
    write(&engine, (0..3).map(|lane| Write::Insert(Row::Writer(7, lane, 0))).collect());
    write(&engine, vec![Write::Insert(Row::Counter(Counter::UsedSpace, 1000))]);
    for lane in 0..3 {
        let step = Step { writer: 7, lane, from: 0, to: 1 };
        let writes = vec![Write::Count(Counter::UsedSpace, 10), Write::Count(Counter::TotalInodes, -1)];
        let commit = Commit { step: Some(step), writes, ..Commit::default() };
        engine.commit(&commit).expect("commit");
    }
    assert_eq!(used(), Some(Row::Counter(Counter::UsedSpace, 1030)));
    assert_eq!(stored(), Some(1000_i64.to_le_bytes().into()), "no commit met another there");
    // Somebody corrects the total, and takes the writer for dead; another adds by itself.
    write(&engine, vec![Write::Put(Row::Counter(Counter::UsedSpace, 2000))]);
    assert_eq!(used(), Some(Row::Counter(Counter::UsedSpace, 2000)));
    write(&engine, vec![Write::Delete(Key::Writer(7, 1)), Write::Count(Counter::UsedSpace, 5)]);
    assert_eq!(used(), Some(Row::Counter(Counter::UsedSpace, 2005)));
    write(&engine, vec![Write::Clear(List::Lanes(7))]);
    assert_eq!(used(), Some(Row::Counter(Counter::UsedSpace, 2005)));
    assert_eq!(stored(), Some(2005_i64.to_le_bytes().into()));
    let inodes = get(&engine, Key::Counter(Counter::TotalInodes));
    assert_eq!(inodes, Some(Row::Counter(Counter::TotalInodes, -3)));
}

/// Who reads up to a line need not fear those of a transaction that began long before.
#[test]
fn lines_are_numbered_at_their_commits() {
    let engine = server::open(&server::fresh_url());
    let line = |text: &str| Commit { writes: vec![Write::Log(text.into())], ..Commit::default() };
    let mut begun = Moment::default();
    engine.read_at(&[Read::Get(Key::Setting)], &mut begun).expect("up");
    engine.commit(&line("first")).expect("up");
    engine.commit_at(&line("second"), begun).expect("up");
    let lines = engine.change_log().expect("a log").lines(0, 10).expect("up");
    assert_eq!(lines.iter().map(|line| &line.text[..]).collect::<Vec<_>>(), [&b"first"[..], b"second"]);
}
