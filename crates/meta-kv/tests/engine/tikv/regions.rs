//! What the tests' own TiKV service says of its regions: a client finds no region for a key that
//! lies between two.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Commit, Cursor, Engine, Scan, Write},
    schema::Row,
};
use sluice_testkit::server::{Tikv, TikvOptions, TikvRegion};
use sluice_types::{Ino, Name};

use super::server;

/// Regions whose halves are hard to tell: nearly all of them is one value, the last or the first.
#[test]
fn regions_have_no_gaps_whatever_is_split() {
    for large in ["user.zzz", "user.000"] {
        let server = Tikv::start(TikvOptions { region_size: 16 << 10, ..TikvOptions::default() })
            .expect("TiKV starts");
        let before = splits(&regions(&server));
        let engine = server::open(&server.url("volume"));
        let small = (100..400).map(|n| (format!("user.{n}"), 1));
        let rows = small.chain([(large.to_owned(), 60_000)]).map(|(name, length)| {
            Write::Insert(Row::Xattr(Ino(5), Name::stored(name.as_bytes()), vec![7; length].into()))
        });
        engine.commit(&Commit { writes: rows.collect(), ..Commit::default() }).expect("commit");
        let until = Instant::now() + Duration::from_mins(1);
        let mut found = regions(&server);
        while splits(&found) == before || !is_whole(&found) {
            assert!(Instant::now() < until, "{large}: {found:?}");
            found = regions(&server);
        }
    }
}

/// Some of the rows are loaded while regions are split. The parts of a scan give what the whole
/// gives.
#[test]
fn loads_and_scans_cross_the_borders_of_regions() {
    let server =
        Tikv::start(TikvOptions { region_size: 16 << 10, ..TikvOptions::default() }).expect("TiKV starts");
    let engine = server::open(&server.url("volume"));
    let xattr = |n: u64| Row::Xattr(Ino(n), Name::stored(b"user.x"), vec![7; 50].into());
    let rows: Vec<Row> = (1000..5000).map(xattr).collect();
    engine.load(&rows[..2000]).expect("load");
    let until = Instant::now() + Duration::from_mins(1);
    while regions(&server).len() < 4 {
        assert!(Instant::now() < until, "{:?}", regions(&server));
    }
    engine.load(&rows[2000..]).expect("load");
    let snapshot = engine.snapshot(2).expect("up").expect("snapshots");
    let scan = |from: Option<&Cursor>| snapshot.scan(Scan::Inodes, from, 500).expect("scan");
    let first = scan(None);
    let (parts, rest) = snapshot.divide(first.next.expect("more than a page"));
    assert!(parts.len() > 4 && rest.is_none(), "{} parts", parts.len());
    let mut found = first.rows;
    for part in parts {
        let mut from = Some(part);
        while from.is_some() {
            let page = scan(from.as_ref());
            found.extend(page.rows);
            from = page.next;
        }
    }
    let ino = |row: &Row| if let Row::Xattr(ino, ..) = row { Some(*ino) } else { None };
    let mut inodes: Vec<Ino> = found.iter().filter_map(ino).collect();
    inodes.sort_unstable();
    assert_eq!(inodes, (1000..5000).map(Ino).collect::<Vec<_>>());
}

fn regions(server: &Tikv) -> Vec<TikvRegion> {
    server.regions().expect("the placement driver answers")
}

fn splits(regions: &[TikvRegion]) -> u64 {
    regions.iter().map(|region| region.version).sum()
}

/// Whether each key lies in exactly one of them.
fn is_whole(regions: &[TikvRegion]) -> bool {
    let starts = regions.iter().map(|region| region.start.as_str());
    let ends = regions.iter().map(|region| region.end.as_str());
    starts.chain([""]).eq([""].into_iter().chain(ends))
}
