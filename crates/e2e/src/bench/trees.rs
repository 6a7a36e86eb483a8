//! Rows about trees of small files that common programs write and remove, one process at a time:
//! `tar`, `cp`, `git`, `du`, `rm`.
//!
//! What must stay true: the trees that were written equal their source. The limit is a file system
//! in memory: what FUSE and the programs alone need.

use super::{
    Turn,
    place::{Blocks, Place},
    row::{NOTHING, Row, SECONDS, local},
};
use crate::{pattern, rig::command};
use anyhow::ensure;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{fs, path::Path, time::Instant};

pub(super) const ROWS: [Row; 5] = [
    Row { name: "tree: tar x", unit: SECONDS, targets: local(3.0) },
    Row { name: "tree: cp -r", unit: SECONDS, targets: local(3.0) },
    Row { name: "tree: git clone", unit: SECONDS, targets: local(2.5) },
    Row { name: "tree: du, cold", unit: SECONDS, targets: NOTHING },
    Row { name: "tree: rm -rf", unit: SECONDS, targets: local(3.5) },
];

/// Files of a directory.
const WIDTH: usize = 16;
/// Sizes of files are powers of two with these exponents, less some bytes.
const EXPONENTS: std::ops::RangeInclusive<u32> = 7..=16;

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    fs::create_dir_all(&turn.plan.within)?;
    let source = tempfile::Builder::new().prefix("trees-").tempdir_in(&turn.plan.within)?;
    make(source.path(), turn.plan.sizes.tree, turn.seed())?;
    let Some(mut place) = Place::new(turn)? else { return Ok(vec![None; ROWS.len()]) };
    let point = place.path().to_owned();
    let figures = rows(source.path(), &point, || place.cold(Blocks::Stay))?;
    place.finish()?;
    Ok(figures.map(Some).into())
}

/// Seconds of each row, in a directory; `cold` makes the kernel forget what it knows of it.
fn rows(source: &Path, folder: &Path, cold: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<[f64; 5]> {
    let [tree, archive, repository] = ["tree", "tree.tar", "tree/.git"].map(|name| text(&source.join(name)));
    let [unpacked, copied, cloned] = ["unpacked", "copied", "cloned"].map(|name| text(&folder.join(name)));
    fs::create_dir(&unpacked)?;
    let tar = seconds("tar", &["-x", "-f", &archive, "-C", &unpacked])?;
    let cp = seconds("cp", &["-r", &unpacked, &copied])?;
    let git = seconds("git", &["clone", "-q", "--no-hardlinks", &repository, &cloned])?;
    cold()?;
    let du = seconds("du", &["-s", &unpacked])?;
    for written in [&unpacked, &copied, &cloned] {
        command(Path::new("diff"), &["-r", "-q", "-x", ".git", &tree, written])?;
    }
    let rm = seconds("rm", &["-r", "-f", &copied])?;
    ensure!(!Path::new(&copied).exists(), "{copied} is still there");
    Ok([tar, cp, git, du, rm])
}

fn seconds(program: &str, arguments: &[&str]) -> anyhow::Result<f64> {
    let start = Instant::now();
    command(Path::new(program), arguments)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Makes the tree, its archive, and a Git repository whose only commit it is.
fn make(source: &Path, files: usize, seed: u64) -> anyhow::Result<()> {
    let tree = source.join("tree");
    let mut rng = StdRng::seed_from_u64(seed);
    for file in 0..files {
        let directory = tree.join(format!("d{}/e{}", file / WIDTH / WIDTH, file / WIDTH));
        if file % WIDTH == 0 {
            fs::create_dir_all(&directory)?;
        }
        let largest = 1_usize << rng.random_range(EXPONENTS);
        let bytes = pattern::bytes(file as u64, rng.random_range(largest / 2..largest));
        fs::write(directory.join(format!("f{file}")), bytes)?;
    }
    let tree = text(&tree);
    command(Path::new("tar"), &["-c", "-f", &text(&source.join("tree.tar")), "-C", &tree, "."])?;
    let git = |arguments: &[&str]| {
        let who = ["-C", &tree, "-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        command(Path::new("git"), &[&who, arguments].concat())
    };
    git(&["init", "-q"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "all"])?;
    // Another repository is a few packs, not a file for each version of a file.
    git(&["repack", "-q", "-a", "-d"])?;
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
