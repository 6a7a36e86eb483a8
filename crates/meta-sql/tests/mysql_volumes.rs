//! A volume that JuiceFS wrote on MariaDB.

mod mysql;

use std::{collections::BTreeMap, sync::Arc};

use mysql::{get, open, server};
use sluice_meta::{
    Interrupt, Meta, Options,
    engine::{Engine, Found, List, Page, Read, Scan},
    op::At,
    ops::{
        create::Create,
        setattr::{Changes, SetAttr},
        write::Write,
        xattr::{GetXattr, RemoveXattr, SetXattr, XattrMode},
    },
    schema::{Key, Row, VolumeFormat},
};
use sluice_meta_sql::MysqlEngine;
use sluice_types::{Caller, FileType, FsError, Ino, Name, Slice, Time};

/// A database with that volume.
fn juicefs() -> String {
    let database = server().database().expect("a database");
    let dump = include_str!("mysql/fixtures/juicefs.sql");
    server().sql(&format!("USE {database};\n{dump}")).expect("the dump");
    database
}

fn all(engine: &MysqlEngine, scan: Scan) -> Vec<Row> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let Page { rows, next, damaged } = engine.scan(scan, from.as_ref(), 7).expect("scan");
        assert_eq!(damaged, []);
        all.extend(rows);
        match next {
            Some(next) => from = Some(next),
            None => return all,
        }
    }
}

fn bytes(of: &serde_json::Value) -> Vec<u8> {
    hex::decode(of.as_str().expect("text")).expect("hex")
}

fn nanos(time: Time) -> i64 {
    time.sec * 1_000_000_000 + i64::from(time.nsec)
}

#[test]
fn a_volume_of_juicefs_is_read_as_it_was_written() {
    let engine = open(&server().unix_url(&juicefs()));
    let Ok(Some(Row::Setting(json))) = get(&engine, Key::Setting) else { panic!("no settings") };
    let format = VolumeFormat::parse(&json).expect("settings");
    assert_eq!(format.name, "myvol");
    let manifest: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("mysql/fixtures/juicefs.json")).expect("the manifest");
    let nodes: BTreeMap<u64, _> = all(&engine, Scan::Nodes)
        .into_iter()
        .filter_map(|row| if let Row::Node(ino, attr) = row { Some((ino.0, attr)) } else { None })
        .collect();
    for file in &manifest {
        let number = |name: &str| file[name].as_i64().expect("a number");
        let ino = Ino(number("ino") as u64);
        let attr = nodes.get(&ino.0).expect("a node");
        let notice = [i64::from(attr.uid), i64::from(attr.gid), i64::from(attr.nlink), attr.length as i64];
        assert_eq!(notice, ["uid", "gid", "nlink", "size"].map(number), "{file}");
        let times = [attr.mtime, attr.atime, attr.ctime].map(nanos);
        assert_eq!(times, ["mtime_ns", "atime_ns", "ctime_ns"].map(number), "{file}");
        let mode = file["mode"].as_str().expect("octal").trim_start_matches("0o");
        let mode = u32::from_str_radix(mode, 8).expect("octal");
        assert_eq!(mode & 0o7777, u32::from(attr.mode), "{file}");
        if matches!(attr.kind, FileType::Block | FileType::Char) {
            assert_eq!(i64::from(attr.rdev), number("rdev"), "{file}");
        }
        // An entry of its parent leads to it.
        let path = bytes(&file["path_hex"]);
        if attr.parent != Ino::NONE && !path.is_empty() {
            let name = path.rsplit(|byte| *byte == b'/').next().expect("a name");
            let follow = Read::Follow(attr.parent, Name::stored(name));
            let found = engine.read(&[follow]).expect("up").pop();
            let Some(Found::Rows(rows)) = found else { panic!("{file}: {found:?}") };
            assert_eq!(rows[1], Row::Node(ino, *attr), "{file}");
        }
        if let Some(target) = file.get("target_hex") {
            assert_eq!(get(&engine, Key::Symlink(ino)), Ok(Some(Row::Symlink(ino, bytes(target).into()))));
        }
        let notice = file.get("xattrs_hex").and_then(|notice| notice.as_object()).into_iter().flatten();
        let notice: Vec<Row> = notice
            .filter(|(name, _)| name.starts_with("user."))
            .map(|(name, value)| Row::Xattr(ino, Name::stored(name.as_bytes()), bytes(value).into()))
            .collect();
        let found = engine.read(&[Read::All(List::Xattrs(ino))]);
        assert_eq!(found, Ok(vec![Found::Rows(notice)]), "{file}");
    }
    for kind in [Scan::AllEntries, Scan::Chunks, Scan::SliceRefs, Scan::Acls, Scan::DirStats] {
        assert!(!all(&engine, kind).is_empty(), "{kind:?}");
    }
    for kind in [Scan::DelFiles, Scan::DelSlices, Scan::Sessions, Scan::Sustained, Scan::Quotas] {
        all(&engine, kind);
    }
}

#[test]
fn what_is_written_there_stands_as_juicefs_reads_it() {
    let database = juicefs();
    let engine = Arc::new(open(&server().unix_url(&database)));
    let meta = Meta::open(engine.clone(), Options::default()).expect("open");
    let never = Interrupt::never();
    let make = |name: &[u8], kind, rdev| {
        let ino = meta.new_ino(&never).expect("a number");
        let at = At::new(Ino::ROOT, Name::stored(name));
        let caller = Caller::client();
        let made = Create { at, ino, kind, mode: 0o640, umask: 0, rdev, target: None, caller };
        meta.run(made, &never).expect("create");
        ino
    };
    let file = make(b"ours", FileType::File, 0);
    let id = meta.new_slice(&never).expect("a number");
    let slices = vec![Slice::whole(0, id, 5)];
    let mtime = Time { sec: 1_700_000_000, nsec: 123_456_789 };
    meta.run(Write { ino: file, index: 0, slices, mtime }, &never).expect("write");
    // More than its columns have bits for: as a negative number, which JuiceFS takes for the number
    // that is meant.
    let changes = Changes { uid: Some(3_000_000_000), gid: Some(u32::MAX - 1), ..Changes::default() };
    let owned = meta.run(SetAttr { ino: file, changes, caller: Caller::client() }, &never).expect("chown");
    assert_eq!((owned.uid, owned.gid), (3_000_000_000, u32::MAX - 1));
    let device = make(b"device", FileType::Char, u32::MAX - 4);
    meta.close().expect("close");

    let column = |text: &str| server().sql(&format!("USE {database}; {text}")).expect("a row");
    let node = column(&format!(
        "SELECT type,mode,uid,gid,nlink,length,mtime,mtimensec,parent FROM jfs_node WHERE inode={}",
        file.0
    ));
    assert_eq!(node.replace('\t', " "), "1 416 -1294967296 -2 1 5 1700000000123456 789 1");
    assert_eq!(column(&format!("SELECT rdev FROM jfs_node WHERE inode={}", device.0)), "-5");
    assert_eq!(column(&format!("SELECT size,refs FROM jfs_chunk_ref WHERE chunkid={id}")), "5\t1");
    let slices = column(&format!("SELECT HEX(slices) FROM jfs_chunk WHERE inode={} AND indx=0", file.0));
    assert_eq!(slices, format!("00000000{id:016X}000000050000000000000005"));
    for (ino, uid, rdev) in [(file, 3_000_000_000, 0), (device, 0, u32::MAX - 4)] {
        let Ok(Some(Row::Node(_, attr))) = get(&engine, Key::Node(ino)) else { panic!("no node") };
        assert_eq!((attr.uid, attr.rdev), (uid, rdev));
    }
}

/// Its tables take such names for one and the same, and so does JuiceFS there.
#[test]
fn attributes_whose_names_its_tables_cannot_tell_apart_are_one() {
    let engine = Arc::new(open(&server().unix_url(&juicefs())));
    let meta = Meta::open(engine.clone(), Options::default()).expect("open");
    let never = Interrupt::never();
    let name = |of: &str| Name::stored(of.as_bytes());
    let set = |of: &str, value: &'static [u8]| SetXattr {
        ino: Ino::ROOT,
        name: name(of),
        value: value.into(),
        mode: XattrMode::Any,
        caller: Caller::client(),
    };
    // In one commit, then one after the other.
    for names in [["user.case", "user.CASE"], ["user.end", "user.end  "]] {
        let done = meta.run_all(vec![set(names[0], b"1"), set(names[1], b"2")], &never);
        assert_eq!(done, [Ok(()), Ok(())], "{names:?}");
        for (of, value) in [(names[0], b"3"), (names[1], b"4")] {
            meta.run(set(of, value), &never).unwrap_or_else(|error| panic!("{of:?}: {error}"));
            for of in names {
                let found = meta.read(&GetXattr { ino: Ino::ROOT, name: name(of) }, &never);
                assert_eq!(found.expect("it is there")[..], value[..], "{of:?}");
            }
        }
        let remove = RemoveXattr { ino: Ino::ROOT, name: name(names[0]), caller: Caller::client() };
        meta.run(remove, &never).expect("removed");
        let found = meta.read(&GetXattr { ino: Ino::ROOT, name: name(names[1]) }, &never);
        assert_eq!(found, Err(FsError::NoData));
    }
    meta.close().expect("close");
}
