//! What the tests' own TiKV service says of its regions: a client finds no region for a key that
//! lies between two.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Commit, Engine, Write},
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
