//! Rows about metadata alone: `mdtest`, and `clone` and `rmr` of one flat directory.

use super::{Side, Turn, limit};
use crate::rig::{self, Volume};
use anyhow::{Context, ensure};
use std::time::{Duration, Instant};

/// Bytes that mdtest says each file has.
const WRITE: &str = "8192";

/// The work of a run of mdtest.
#[derive(Clone, Copy)]
struct Work {
    threads: usize,
    /// Levels below the directory that all files are in otherwise, each of two directories.
    depth: usize,
    /// Of each thread in each directory.
    files: usize,
    /// Bytes that each file is said to have.
    write: &'static str,
}

impl Work {
    /// Files in one directory.
    fn flat(threads: usize, files: usize) -> Self {
        Self { threads, depth: 0, files: files / threads, write: WRITE }
    }
}

pub(super) fn many(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = turn.plan.sizes.many;
    if turn.side == Side::Limit {
        return limit::rows(turn, files, 100);
    }
    Ok(vec![Some(mdtest(turn, &turn.volume()?, Work::flat(100, files))?)])
}

/// A directory with two others in it, and files without a byte in all three.
pub(super) fn some(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None]);
    }
    let files = turn.plan.sizes.many / 250;
    let work = Work { threads: 50, depth: 1, files, write: "0" };
    Ok(vec![Some(mdtest(turn, &turn.volume()?, work)?)])
}

pub(super) fn alone(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = turn.plan.sizes.alone;
    if turn.side == Side::Limit {
        return limit::rows(turn, files, 1);
    }
    Ok(vec![Some(mdtest(turn, &turn.volume()?, Work::flat(1, files))?)])
}

/// As [`many`] over 5, 10 and 20 connections; `JuiceFS` has as many as it wants each time.
pub(super) fn few_connections(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let work = Work::flat(100, turn.plan.sizes.many);
    match turn.side {
        Side::Limit => Ok(vec![None; 3]),
        Side::JuiceFs => Ok(vec![Some(mdtest(turn, &turn.volume()?, work)?); 3]),
        Side::Sluice => [5, 10, 20]
            .map(|most| {
                let mut volume = turn.volume()?;
                volume.add_option(&format!("max_open_conns={most}"));
                mdtest(turn, &volume, work).map(Some)
            })
            .into_iter()
            .collect(),
    }
}

/// Fills one directory of a volume with `files` files.
pub(super) fn fill(turn: &Turn, volume: &Volume, files: usize) -> anyhow::Result<()> {
    mdtest(turn, volume, Work::flat(100, files)).map(drop)
}

/// Files a second made in a new directory, so many of them.
pub(super) fn beside(turn: &Turn, volume: &Volume, dir: &str, files: usize) -> anyhow::Result<f64> {
    mdtest_in(turn, volume, Work::flat(100, files), dir)
}

fn mdtest(turn: &Turn, volume: &Volume, work: Work) -> anyhow::Result<f64> {
    mdtest_in(turn, volume, work, "/bench")
}

/// Makes files below `dir`; files a second as the program counts them.
fn mdtest_in(turn: &Turn, volume: &Volume, work: Work, dir: &str) -> anyhow::Result<f64> {
    let [threads, files, depth] = [work.threads, work.files, work.depth].map(|number| number.to_string());
    let dirs = (work.depth + 1).to_string();
    let mut arguments = vec!["mdtest", "--depth", &depth, "--dirs", &dirs, "--write", work.write];
    arguments.extend(["--threads", &threads, "--files", &files]);
    arguments.extend(turn.quiet());
    let cache = volume.path("mdtest-cache").to_string_lossy().into_owned();
    if turn.side == Side::JuiceFs {
        // Its mdtest opens a block cache though it writes no block.
        arguments.extend(["--cache-dir", &cache]);
    }
    arguments.extend([volume.meta.as_str(), dir]);
    let output = volume.command(&arguments)?;
    files_per_second(&output).with_context(|| format!("mdtest printed no rate:\n{output}"))
}

/// The last `(N files/s)` of what mdtest prints.
pub(super) fn files_per_second(output: &str) -> Option<f64> {
    let (before, _) = output.rsplit_once(" files/s)")?;
    before.rsplit_once('(')?.1.parse().ok()
}

/// A flat directory, cloned and the clone removed, both through the mount: the time of the whole
/// command.
pub(super) fn tree(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None, None]);
    }
    let files = turn.plan.sizes.flat;
    let mut volume = turn.volume()?;
    fill(turn, &volume, files)?;
    let top = turn.mount(&mut volume)?.join("bench/test-dir.0-0");
    let (source, copy) = (top.join("mdtest_tree.0"), top.join("copy"));
    let [source, target] = [&source, &copy].map(|path| path.to_string_lossy().into_owned());

    let start = Instant::now();
    volume.command(&["clone", &source, &target])?;
    let clone = start.elapsed().as_secs_f64();
    let count = std::fs::read_dir(&copy)?.count();
    ensure!(count == files, "{count} of {files} entries were cloned");

    let start = Instant::now();
    volume.command(&["rmr", "--skip-trash", "--threads", "16", &target])?;
    let rmr = start.elapsed().as_secs_f64();
    // The kernel may believe in a name for a second more.
    rig::until("the removed directory to go", Duration::from_secs(20), || !copy.exists())?;
    volume.unmount()?;
    Ok(vec![Some(clone), Some(rmr)])
}

#[cfg(test)]
mod tests {
    use super::files_per_second;

    #[test]
    fn rates_of_both_programs() {
        let plain = "Created 1 dirs in 0.00s (1087 dirs/s)\nCreated 100 files in 0.03s (3038 files/s)\n";
        assert_eq!(files_per_second(plain), Some(3038.0));
        let logged = "<INFO>: Created 100 files in 66.85ms (1495 files/s) [runTest@mdtest.go:151]\nclose\n";
        assert_eq!(files_per_second(logged), Some(1495.0));
        assert_eq!(files_per_second("killed"), None);
    }
}
