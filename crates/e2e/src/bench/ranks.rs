//! Rows in the shape of the mdtest runs of the "Metadata Engines Benchmark" of `JuiceFS`: 12 ranks
//! over three mounts of one volume, each in a tree of its own (`-u`).
//!
//! What must stay true: all ranks begin a phase together, and its time ends with the last of them,
//! as in mdtest of IOR. A phase that did not do its work fails: trees are only removed when they
//! are empty. The limit is one file system in memory, which all ranks share.

use super::{
    NOTHING, Row, Side, Turn, all, memory,
    place::Place,
    rate,
    row::{MEMORY, OPERATIONS},
};
use crate::rig;
use anyhow::{Context, ensure};
use rustix::fs::{Mode, OFlags, open};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

const RANKS: usize = 12;
const MOUNTS: usize = 3;
/// Bytes of a small file, written by one call.
const SMALL_FILE: usize = 102_400;
/// Directories in each directory of a tree (`-b`).
const BRANCHES: usize = 3;

/// Open MPI refuses to run as root, or with more ranks than processors, unless it is told so; MPICH
/// knows no such options.
const OPEN_MPI: [&str; 4] = [
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
];

/// What mdtest calls the phases: of directories, of files, of the trees that hold them.
const PHASES: [&str; 9] = [
    "Directory creation",
    "Directory stat",
    "Directory removal",
    "File creation",
    "File stat",
    "File read",
    "File removal",
    "Tree creation",
    "Tree removal",
];

const fn row(name: &'static str) -> Row {
    Row { name, unit: OPERATIONS, targets: NOTHING }
}

/// `-b 3 -z 1 -I 100`: four directories for each rank, with directories and then empty files.
pub(super) const EMPTY: [Row; 10] = [
    row("published mdtest, directory creation"),
    row("published mdtest, directory stat"),
    row("published mdtest, directory removal"),
    Row { name: "published mdtest, file creation", unit: OPERATIONS, targets: all(3.5) },
    row("published mdtest, file stat"),
    row("published mdtest, file read"),
    Row { name: "published mdtest, file removal", unit: OPERATIONS, targets: all(3.5) },
    row("published mdtest, tree creation"),
    row("published mdtest, tree removal"),
    Row { name: "memory: published mdtest", unit: MEMORY, targets: all(2.0) },
];

/// `-F -w 102400 -I 1000 -z 0`: one directory for each rank, with files of 100 KiB.
pub(super) const SMALL: [Row; 7] = [
    row("published mdtest, 100 KiB: file creation"),
    row("published mdtest, 100 KiB: file stat"),
    row("published mdtest, 100 KiB: file read"),
    row("published mdtest, 100 KiB: file removal"),
    row("published mdtest, 100 KiB: tree creation"),
    row("published mdtest, 100 KiB: tree removal"),
    Row { name: "memory: published mdtest, 100 KiB", unit: MEMORY, targets: all(2.0) },
];

/// What the ranks do.
#[derive(Clone, Copy)]
struct Shape {
    depth: usize,
    items: usize,
    /// Bytes of each file.
    size: usize,
    /// Whether there are directories in the trees, too.
    directories: bool,
}

pub(super) fn empty(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let items = turn.plan.sizes.items / 10;
    run(turn, Shape { depth: 1, items, size: 0, directories: true })
}

pub(super) fn small(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    run(turn, Shape { depth: 0, items: turn.plan.sizes.items, size: SMALL_FILE, directories: false })
}

fn run(turn: &Turn, shape: Shape) -> anyhow::Result<Vec<Option<f64>>> {
    let phases = if shape.directories { &PHASES[..] } else { &PHASES[3..] };
    if turn.side == Side::Limit {
        let Some(place) = Place::new(turn)? else { return Ok(vec![None; phases.len() + 1]) };
        let rates = rates(turn, &vec![place.path().to_owned(); MOUNTS], shape, phases)?;
        place.finish()?;
        return Ok(rates.into_iter().map(Some).chain([None]).collect());
    }
    let mut volume = turn.volume()?;
    let points = (0..MOUNTS).map(|_| turn.mount(&mut volume)).collect::<anyhow::Result<Vec<_>>>()?;
    let rates = rates(turn, &points, shape, phases)?;
    let [_, highest] = memory::memory(&points[0])?;
    volume.unmount()?;
    Ok(rates.into_iter().chain([highest]).map(Some).collect())
}

/// The rates of the phases, by mdtest if the plan names it.
fn rates(turn: &Turn, points: &[PathBuf], shape: Shape, phases: &[&str]) -> anyhow::Result<Vec<f64>> {
    let Some(program) = &turn.plan.mdtest else { return threads(points, shape) };
    let output = mdtest(program, points, shape)?;
    let figure = |name: &&str| summary(&output, name).with_context(|| format!("no {name} in:\n{output}"));
    phases.iter().map(figure).collect()
}

/// The output of mdtest.
fn mdtest(program: &Path, points: &[PathBuf], shape: Shape) -> anyhow::Result<String> {
    let directories: Vec<_> = points.iter().map(|point| point.to_string_lossy()).collect();
    let directories = directories.join("@");
    let [ranks, items, depth, branches, size] =
        [RANKS, shape.items, shape.depth, BRANCHES, shape.size].map(|number| number.to_string());
    let program = program.to_string_lossy();
    let mut arguments = [&OPEN_MPI[..], &["mpirun", "-np", &ranks, &program, "-u"]].concat();
    arguments.extend(["-d", &directories, "-I", &items, "-z", &depth]);
    arguments.extend(if shape.directories { ["-b", &branches] } else { ["-w", &size] });
    arguments.extend((!shape.directories).then_some("-F"));
    rig::command(Path::new("env"), &arguments)
}

/// The mean of a phase in the `SUMMARY rate` of mdtest. Each line ends with mean and deviation; new
/// versions print the same of single ranks before.
fn summary(output: &str, name: &str) -> Option<f64> {
    let (_, rates) = output.split_once("SUMMARY rate")?;
    let line = rates.lines().find_map(|line| line.trim().strip_prefix(name))?;
    line.split_whitespace().rev().nth(1)?.parse().ok()
}

/// The same by threads of this process; the rates of the phases in the order of [`PHASES`].
fn threads(points: &[PathBuf], shape: Shape) -> anyhow::Result<Vec<f64>> {
    fs::create_dir(points[0].join("ranks"))?;
    let trees: Vec<Vec<PathBuf>> = (0..RANKS)
        .map(|rank| {
            let root = points[rank * points.len() / RANKS].join(format!("ranks/tree-{rank}"));
            let below = (0..BRANCHES * shape.depth).map(|branch| root.join(format!("tree-{branch}")));
            std::iter::once(root.clone()).chain(below).collect()
        })
        .collect();
    let items: Vec<Vec<PathBuf>> = trees
        .iter()
        .map(|tree| {
            let item = |at: usize| move |directory: &PathBuf| directory.join(format!("item-{at}"));
            tree.iter().flat_map(|directory| (0..shape.items).map(move |at| item(at)(directory))).collect()
        })
        .collect();
    let bytes = vec![b'x'; shape.size];
    let mut rates = Vec::new();
    let planted = phase(&trees, |directory| Ok(fs::create_dir(directory)?))?;
    if shape.directories {
        rates.push(phase(&items, |item| Ok(fs::create_dir(item)?))?);
        rates.push(phase(&items, |item| {
            ensure!(fs::symlink_metadata(item)?.is_dir(), "{} is no directory", item.display());
            Ok(())
        })?);
        rates.push(phase(&items, |item| Ok(fs::remove_dir(item)?))?);
    }
    rates.push(phase(&items, |item| write(item, &bytes))?);
    rates.push(phase(&items, |item| {
        let size = fs::symlink_metadata(item)?.len();
        ensure!(size == bytes.len() as u64, "{} has {size} bytes", item.display());
        Ok(())
    })?);
    // As mdtest without `-e`: the file is opened, and no byte of it is read.
    rates.push(phase(&items, |item| open(item, OFlags::RDONLY, Mode::empty()).map(drop).context("open"))?);
    rates.push(phase(&items, |item| Ok(fs::remove_file(item)?))?);
    let up: Vec<Vec<PathBuf>> = trees.into_iter().map(|tree| tree.into_iter().rev().collect()).collect();
    let felled = phase(&up, |directory| Ok(fs::remove_dir(directory)?))?;
    rates.extend([planted, felled]);
    Ok(rates)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let file = open(path, OFlags::CREATE | OFlags::RDWR, Mode::from(0o664))?;
    if !bytes.is_empty() {
        super::file::write_at(&file, bytes, 0)?;
    }
    Ok(())
}

/// Does something to all paths of each rank, the ranks at once; paths a second.
fn phase(paths: &[Vec<PathBuf>], one: impl Fn(&Path) -> anyhow::Result<()> + Sync) -> anyhow::Result<f64> {
    let one = &one;
    let start = Instant::now();
    thread::scope(|scope| {
        let rank = |paths: &'_ [PathBuf]| {
            paths.iter().try_for_each(|path| one(path).with_context(|| path.display().to_string()))
        };
        let ranks: Vec<_> = paths.iter().map(|paths| scope.spawn(move || rank(paths))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a thread of the bench"))
    })?;
    Ok(rate(paths.iter().map(Vec::len).sum(), start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_mdtest() {
        let output = "SUMMARY rate: (of 1 iterations)\n\
                      \x20  Operation                     Max        Min       Mean    Std Dev\n\
                      \x20  File creation                 :     5472.628   5472.000   5470.100      0.000\n\
                      SUMMARY time: (of 1 iterations)\n\
                      \x20  File creation                 :        0.100      0.100      0.100      0.000\n";
        assert_eq!(summary(output, "File creation"), Some(5470.1));
        assert_eq!(summary(output, "File stat"), None);
    }

    #[test]
    fn the_ranks_leave_nothing() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let points = vec![folder.path().to_owned()];
        let shape = Shape { depth: 1, items: 2, size: 3, directories: true };
        assert_eq!(threads(&points, shape)?.len(), PHASES.len());
        assert_eq!(fs::read_dir(folder.path().join("ranks"))?.count(), 0);
        Ok(())
    }
}
