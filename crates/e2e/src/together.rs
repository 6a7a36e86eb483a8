//! Two programs on one volume at once: each writes what the other reads, each takes away what the other made, and each
//! one's `fsck` finds the volume clean.

use crate::{
    compare::{Side, difference},
    pattern,
    rig::{Engine, Volume, until},
    shared,
};
use anyhow::Context;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How long one program may go on showing names that the other has changed.
const NAMES: Duration = Duration::from_mins(1);

/// Formats a volume with the first of `programs`, mounts it with both, and works in it from both sides.
///
/// # Errors
/// The first thing that one of them does not see as the other left it.
pub fn run(
    programs: [&Path; 2],
    engine: Engine,
    within: &Path,
    seed: u64,
    operations: usize,
) -> anyhow::Result<()> {
    let mut volume = Volume::new(programs[0], engine, within, &[])?;
    let mut mounts = Vec::new();
    for program in programs {
        mounts.push(volume.mount_by(program, &[])?);
    }
    let done = work(&mounts, seed, operations);
    done.with_context(|| format!("the mounts said:\n{}", volume.log()))?;
    volume.unmount()?;
    for program in programs {
        volume.fsck_by(program).with_context(|| format!("fsck of {}", program.display()))?;
    }
    Ok(())
}

fn work(mounts: &[PathBuf], seed: u64, operations: usize) -> anyhow::Result<()> {
    shared::run(mounts, seed, operations)?;
    for (maker, other) in [(0, 1), (1, 0)] {
        let name = format!("made-by-{maker}");
        let (here, there) = (mounts[maker].join(&name), mounts[other].join(&name));
        make(&here)?;
        alike(&here, &there).context("what one made")?;
        // The other removes, renames, links and cuts.
        for number in (0..20).step_by(2) {
            std::fs::remove_file(there.join(format!("folder/f{number}")))?;
        }
        std::fs::rename(there.join("folder/f1"), there.join("moved"))?;
        std::fs::hard_link(there.join("folder/f3"), there.join("linked"))?;
        std::fs::File::options().write(true).open(there.join("folder/f5"))?.set_len(100)?;
        std::fs::remove_file(there.join("symlink"))?;
        alike(&here, &there).context("what the other changed")?;
        std::fs::remove_dir_all(&here)?;
        until("the removed folder to go", NAMES, || !there.exists())?;
    }
    Ok(())
}

fn make(root: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(root.join("folder/deeper"))?;
    for number in 0..20 {
        let length = if number == 7 { 9 << 20 } else { 1000 * number as usize };
        std::fs::write(root.join(format!("folder/f{number}")), pattern::bytes(number, length))?;
    }
    std::os::unix::fs::symlink("folder/f1", root.join("symlink"))?;
    rustix::fs::setxattr(root.join("folder"), "user.made", b"yes", rustix::fs::XattrFlags::empty())?;
    Ok(())
}

/// The two mounts show the same tree, once their names are no older than they may be.
fn alike(here: &Path, there: &Path) -> anyhow::Result<()> {
    let sides = [here, there].map(|root| Side::new(root.to_owned(), true));
    let mut seen = None;
    until("the two mounts to agree", NAMES, || {
        seen = difference(&sides[0], &sides[1]);
        seen.is_none()
    })
    .with_context(|| format!("{seen:?}"))
}
