//! Rows about metadata alone: `mdtest`, and `clone` and `rmr` of one flat directory.

use super::{Side, Turn, limit};
use crate::rig::{self, Volume};
use anyhow::{Context, ensure};
use std::time::{Duration, Instant};

/// Bytes that mdtest says each file has.
const WRITE: &str = "8192";

pub(super) fn many(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = turn.plan.sizes.many;
    if turn.side == Side::Limit {
        return limit::rows(turn, files, 100);
    }
    Ok(vec![Some(mdtest(turn, &turn.volume()?, ONE_DIRECTORY, 100, files / 100)?)])
}

/// Fewer threads, whose files spread over three directories.
pub(super) fn spread(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None]);
    }
    let files = turn.plan.sizes.many / 150;
    Ok(vec![Some(mdtest(turn, &turn.volume()?, ["--depth=1", "--dirs=2"], 50, files)?)])
}

pub(super) fn alone(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = turn.plan.sizes.alone;
    if turn.side == Side::Limit {
        return limit::rows(turn, files, 1);
    }
    Ok(vec![Some(mdtest(turn, &turn.volume()?, ONE_DIRECTORY, 1, files)?)])
}

/// The shape of a tree that is one directory.
const ONE_DIRECTORY: [&str; 2] = ["--depth=0", "--dirs=1"];

/// Makes files, `files` by each thread in each directory; files a second as the program counts them.
fn mdtest(
    turn: &Turn,
    volume: &Volume,
    shape: [&str; 2],
    threads: usize,
    files: usize,
) -> anyhow::Result<f64> {
    let (threads, files) = (threads.to_string(), files.to_string());
    let mut arguments = vec!["mdtest", shape[0], shape[1], "--write", WRITE];
    arguments.extend(["--threads", &threads, "--files", &files]);
    arguments.extend(turn.quiet());
    let cache = volume.path("mdtest-cache").to_string_lossy().into_owned();
    if turn.side == Side::JuiceFs {
        // Its mdtest opens a block cache though it writes no block.
        arguments.extend(["--cache-dir", &cache]);
    }
    arguments.extend([volume.meta.as_str(), "/bench"]);
    let output = volume.command(&arguments)?;
    files_per_second(&output).with_context(|| format!("mdtest printed no rate:\n{output}"))
}

/// The last `(N files/s)` of what mdtest prints.
fn files_per_second(output: &str) -> Option<f64> {
    let (before, _) = output.rsplit_once(" files/s)")?;
    before.rsplit_once('(')?.1.parse().ok()
}

/// A flat directory, cloned and the clone removed, both through the mount: the time of the whole command.
pub(super) fn tree(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None, None]);
    }
    let files = turn.plan.sizes.flat;
    let mut volume = turn.volume()?;
    mdtest(turn, &volume, ONE_DIRECTORY, 100, files / 100)?;
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
