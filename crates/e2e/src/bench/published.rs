//! Rows in the shape of the "Metadata Engines Benchmark" of `JuiceFS`: its program `bench`, and
//! `big-write` of fio. The shapes of mdtest are in `ranks`.
//!
//! What must stay true: one program measures both mounts, that of `JuiceFS` if there is one. It
//! also measures the limit, a file system in memory.

use super::{
    NOTHING, Row, Side, Turn, Unit, all,
    place::Place,
    row::{BYTES, FILES, MEMORY},
};
use crate::rig;
use anyhow::Context;
use serde_json::Value;
use std::path::Path;

const MILLIS: Unit = Unit::Cost("ms");
/// Threads of `bench` and processes of fio.
const WRITERS: usize = 4;

/// What `bench` prints, and whether the figure is in the column of costs.
const ITEMS: [(&str, bool); 7] = [
    ("Write big file", false),
    ("Read big file", false),
    ("Write small file", false),
    ("Read small file", false),
    ("Stat file", false),
    ("FUSE operation", true),
    ("Update meta", true),
];

pub(super) const BENCH: [Row; 8] = [
    Row { name: "published bench, write big file", unit: BYTES, targets: all(1.2) },
    Row { name: "published bench, read big file", unit: BYTES, targets: NOTHING },
    Row { name: "published bench, write small file", unit: FILES, targets: all(3.0) },
    Row { name: "published bench, read small file", unit: FILES, targets: all(4.0) },
    Row { name: "published bench, stat file", unit: FILES, targets: NOTHING },
    Row { name: "published bench, FUSE operation", unit: MILLIS, targets: NOTHING },
    Row { name: "published bench, update meta", unit: MILLIS, targets: NOTHING },
    Row { name: "memory: published bench", unit: MEMORY, targets: all(2.0) },
];

pub(super) const FIO: [Row; 2] = [
    Row { name: "published fio, big-write", unit: BYTES, targets: all(1.2) },
    Row { name: "memory: published fio", unit: MEMORY, targets: all(2.0) },
];

/// Four threads with a quarter of the large file each, and a hundred small files.
pub(super) fn bench(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let Some(mut place) = Place::new(turn)? else { return Ok(vec![None; BENCH.len()]) };
    let program = turn.plan.juicefs.as_ref().unwrap_or(&turn.plan.sluice);
    let point = place.path().to_string_lossy().into_owned();
    let [threads, large] = [WRITERS, turn.plan.sizes.large / WRITERS].map(|number| number.to_string());
    let output = rig::command(program, &["bench", "--threads", &threads, "--big-file-size", &large, &point])?;
    let figure = |(name, cost)| cell(&output, name, cost);
    let mut figures: Vec<Option<f64>> = ITEMS.into_iter().map(figure).collect();
    figures[0].with_context(|| format!("bench printed no table:\n{output}"))?;
    figures.push(place.highest()?);
    place.finish()?;
    Ok(figures)
}

/// The number beside `name` in a table of `bench`: `| name | value | cost |`.
fn cell(output: &str, name: &str, cost: bool) -> Option<f64> {
    let line = output.lines().find(|line| line.split('|').nth(1).is_some_and(|cell| cell.trim() == name))?;
    line.split('|').nth(if cost { 3 } else { 2 })?.split_whitespace().next()?.parse().ok()
}

/// Four processes that write half the large file each, and sync it at the end; on both sides
/// without a sync of the blocks.
pub(super) fn fio(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let place = match turn.side {
        Side::Sluice => Some(Place::with_options(turn, &["--no-store-sync"])?),
        _ => Place::new(turn)?,
    };
    let Some(mut place) = place else { return Ok(vec![None; FIO.len()]) };
    let directory = format!("--directory={}", place.path().display());
    let (size, jobs) = (format!("--size={}M", turn.plan.sizes.large / 2), format!("--numjobs={WRITERS}"));
    let work = ["--name=big-write", "--rw=write", "--refill_buffers", "--bs=4M", "--end_fsync=1"];
    let report = ["--group_reporting", "--output-format=json", &directory, &size, &jobs];
    let output = rig::command(Path::new("fio"), &[&work[..], &report].concat())?;
    let start = output.find('{').with_context(|| format!("fio printed no report:\n{output}"))?;
    let report = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>().next();
    let report = report.context("fio printed no report")??;
    let bytes =
        report["jobs"][0]["write"]["bw_bytes"].as_f64().context("no bandwidth in the report of fio")?;
    let highest = place.highest()?;
    place.finish()?;
    Ok(vec![Some(bytes / f64::from(1 << 20)), highest])
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cells_of_a_table() {
        let output = "+------+\n|             ITEM |        VALUE |         COST |\n\
                      |   Write big file | 731.93 MiB/s |  5.60 s/file |\n\
                      |   FUSE operation | 1234 operations |  0.41 ms/op |\n";
        assert_eq!(cell(output, "Write big file", false), Some(731.93));
        assert_eq!(cell(output, "FUSE operation", true), Some(0.41));
        assert_eq!(cell(output, "Update meta", true), None);
    }
}
