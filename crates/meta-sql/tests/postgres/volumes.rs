//! A volume that JuiceFS wrote, and tables as JuiceFS makes them.

use std::{collections::BTreeMap, fs, io, path::Path};

use sluice_meta::{
    engine::{Engine, Found, List, Page, Read, Scan, Write},
    schema::{AclRule, Counter, Extra, Key, Row, VolumeFormat},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::server::{self, Postgres};
use sluice_types::{Ino, Name, Slice};

use super::{commit, fresh_url, get, open};

/// A database with the volume that JuiceFS wrote.
fn juicefs(server: &Postgres) -> String {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/fixtures/juicefs.sql.gz");
    let dump = tempfile::NamedTempFile::new().expect("a file");
    let mut packed = flate2::read::GzDecoder::new(fs::File::open(fixture).expect("the fixture"));
    io::copy(&mut packed, &mut dump.as_file()).expect("unpack");
    let database = server.database().expect("a database");
    server.restore(&database, dump.path()).expect("the dump");
    database
}

fn scan(engine: &PostgresEngine, scan: Scan) -> Vec<Row> {
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

#[test]
fn tables_are_those_of_juicefs() {
    let server = server::postgres().expect("a server");
    let (theirs, ours) = (juicefs(server), server.database().expect("a database"));
    let engine = open(&server.unix_url(&ours));
    engine.prepare().expect("twice");
    let described = |database: &str| {
        let columns = "SELECT table_name,ordinal_position,column_name,data_type,character_maximum_length,is_nullable,\
             column_default FROM information_schema.columns WHERE table_name LIKE 'jfs%' ORDER BY 1,2";
        let indexes = "SELECT indexname,indexdef FROM pg_indexes WHERE tablename LIKE 'jfs%' ORDER BY 1";
        let sequences = "SELECT sequencename,data_type FROM pg_sequences ORDER BY 1";
        [columns, indexes, sequences].map(|asked| server.sql_in(database, asked).expect("described"))
    };
    for (ours, theirs) in described(&ours).iter().zip(&described(&theirs)) {
        assert_eq!(ours, theirs);
    }
    // What an older version has not made is added, and nothing else is touched.
    let before = described(&theirs);
    server
        .sql_in(&theirs, "ALTER TABLE jfs_node DROP COLUMN tier_id; DROP TABLE jfs_detached_node; DROP INDEX \"IDX_jfs_edge_inode\"")
        .expect("as it was once");
    open(&server.unix_url(&theirs));
    assert_eq!(described(&theirs)[1..], before[1..]);
    assert!(described(&theirs)[0].contains("tier_id"));
}

#[test]
fn a_volume_of_juicefs_is_read_as_it_was_written() {
    let server = server::postgres().expect("a server");
    let url = server.unix_url(&juicefs(server));
    // JuiceFS makes no table for what only Sluice stores.
    let unprepared = PostgresEngine::open(&url).expect("a valid URL");
    assert_eq!(get(&unprepared, Key::Extra(Extra::GroupVersion, 0)), Ok(None));
    let engine = open(&url);
    let Some(Row::Setting(json)) = get(&engine, Key::Setting).expect("up") else { panic!("no settings") };
    let format = VolumeFormat::parse(&json).expect("settings");
    assert_eq!(format.name, "pgvol");
    let manifest = include_str!("fixtures/juicefs.json");
    let manifest: Vec<serde_json::Value> = serde_json::from_str(manifest).expect("the manifest");
    let nodes: BTreeMap<u64, _> = scan(&engine, Scan::Nodes)
        .into_iter()
        .filter_map(|row| if let Row::Node(ino, attr) = row { Some((ino.0, attr)) } else { None })
        .collect();
    for file in &manifest {
        let number = |name: &str| file[name].as_i64().unwrap_or_default();
        let attr = nodes.get(&(number("ino") as u64)).expect("a node");
        let notice = (i64::from(attr.uid), i64::from(attr.gid), i64::from(attr.nlink), attr.length as i64);
        assert_eq!(notice, (number("uid"), number("gid"), number("nlink"), number("size")), "{file}");
        assert_eq!(attr.mtime.sec * 1_000_000_000 + i64::from(attr.mtime.nsec), number("mtime_ns"), "{file}");
        let mode = u32::from_str_radix(file["mode"].as_str().unwrap_or_default().trim_start_matches("0o"), 8);
        assert_eq!(mode.expect("a mode") & 0o7777, u32::from(attr.mode), "{file}");
        // Its last entry leads to it.
        let path = hex::decode(file["path_hex"].as_str().unwrap_or_default()).expect("hex");
        let name = path.rsplit(|byte| *byte == b'/').next().expect("a name");
        let follow = Read::Follow(attr.parent, Name::stored(name));
        if attr.parent != Ino::NONE && !name.is_empty() {
            let Some(Found::Rows(rows)) = engine.read(&[follow]).expect("up").pop() else {
                panic!("no rows")
            };
            assert_eq!(rows[1], Row::Node(Ino(number("ino") as u64), *attr), "{file}");
        }
    }
    for kind in [Scan::AllEntries, Scan::Chunks, Scan::SliceRefs, Scan::Acls, Scan::DirStats] {
        assert!(!scan(&engine, kind).is_empty(), "{kind:?}");
    }
    for kind in
        [Scan::DelFiles, Scan::DelSlices, Scan::Sessions, Scan::Sustained, Scan::Detached, Scan::Quotas]
    {
        scan(&engine, kind);
    }
}

#[test]
fn rules_of_both_are_numbered_apart() {
    let server = server::postgres().expect("a server");
    let database = juicefs(server);
    let engine = open(&server.unix_url(&database));
    let Some(Row::Counter(_, last)) = get(&engine, Key::Counter(Counter::AclMaxId)).expect("up") else {
        panic!("no rules")
    };
    let rule = AclRule { owner: 7, ..AclRule::empty() };
    commit(&engine, vec![Write::Insert(Row::Acl(last as u32 + 1, rule))]).expect("up");
    // As JuiceFS inserts them.
    let theirs =
        server.sql_in(&database, "INSERT INTO jfs_acl(owner) VALUES(5) RETURNING id").expect("a number");
    assert!(theirs.parse::<i64>().expect("a number") > last + 1, "{theirs}");
}

#[test]
fn volumes_share_a_database_by_prefix_or_schema() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    server.sql_in(&database, "CREATE SCHEMA other").expect("a schema");
    let url = server.unix_url(&database);
    let options =
        ["", "&table_prefix=x", "&search_path=other", "&table_prefix=sluice_jfs", "&table_prefix=Vol"];
    let urls = options.map(|option| format!("{url}{option}"));
    let engines: Vec<PostgresEngine> = urls.iter().map(|url| open(url)).collect();
    for (engine, value) in engines.iter().zip(1..) {
        commit(engine, vec![Write::Insert(Row::Counter(Counter::NextInode, value))]).expect("up");
    }
    for (engine, value) in engines.iter().zip(1..) {
        let counter = Counter::NextInode;
        assert_eq!(get(engine, Key::Counter(counter)).expect("up"), Some(Row::Counter(counter, value)));
        let found = engine.read(&[Read::All(List::Xattrs(Ino(1)))]).expect("up");
        assert_eq!(found, [Found::Rows(Vec::new())]);
    }
    sluice_testkit::conformance::logs::logs_are_apart(&engines);
    let tables = "SELECT string_agg(schemaname||'.'||tablename,' ' ORDER BY 1) FROM pg_tables WHERE tablename LIKE '%writer'";
    let named = server.sql_in(&database, tables).expect("tables");
    assert!(named.split(' ').count() == 5 && named.contains("public.sluice_x_writer"), "{named}");
}

#[test]
fn a_schema_put_in_front_of_a_volume_does_not_hide_it() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let url = server.unix_url(&database);
    let number = Row::Counter(Counter::NextInode, 7);
    commit(&open(&url), vec![Write::Insert(number.clone())]).expect("up");
    // The server looks into the schema by the name of the user first.
    server
        .sql_in(&database, "DROP TABLE sluice_writer; CREATE SCHEMA sluice AUTHORIZATION sluice")
        .expect("a schema");
    assert_eq!(get(&open(&url), Key::Counter(Counter::NextInode)).expect("up"), Some(number));
    let tables = "SELECT count(*) FILTER (WHERE schemaname='sluice')||' '||\
        count(*) FILTER (WHERE tablename='sluice_writer') FROM pg_tables";
    assert_eq!(server.sql_in(&database, tables).expect("tables").trim(), "0 1");
}

#[test]
fn chunks_are_cleared_up_to_the_last_that_there_can_be() {
    let engine = open(&fresh_url());
    let chunk = |index| Row::Chunk(Ino(9), index, vec![Slice::whole(0, 5, 6)]);
    commit(&engine, [1, 7].map(|index| Write::Insert(chunk(index))).to_vec()).expect("insert");
    commit(&engine, vec![Write::Clear(List::Chunks(Ino(9), 2, u32::MAX))]).expect("clear");
    let left = [1, 7].map(|index| get(&engine, chunk(index).key()).expect("up"));
    assert_eq!(left, [Some(chunk(1)), None]);
}
