//! The usage of users and groups, on a volume that records it: both programs change it, and JuiceFS
//! checks it.
//!
//! What must stay true: no symbolic links or special files are left, and the root keeps its owner.
//! JuiceFS adds and subtracts them but does not count them when it checks, so that it would find
//! its own volumes wrong.

use super::both::{NAMES, both};
use crate::rig::{Engine, Volume, command, until};
use anyhow::{Context, ensure};
use std::{
    os::unix::{
        fs::{FileExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A user who may have three files.
const LIMITED: u32 = 2001;

/// A user and group with a high number: where the tables are in SQL, JuiceFS fails with those from
/// 2^31 on (EIO).
fn high(engine: Engine) -> u32 {
    match engine {
        Engine::Postgres | Engine::Mariadb => i32::MAX as u32,
        _ => u32::MAX - 1,
    }
}

pub(super) fn run(programs: [&Path; 2], juicefs: &Path, engine: Engine, within: &Path) -> anyhow::Result<()> {
    let mut volume = Volume::new(programs[0], engine, within, &[])?;
    let meta = volume.meta.clone();
    let quota = |arguments: &[&str]| command(juicefs, &[&["quota"], arguments].concat());
    let limited = LIMITED.to_string();
    // The first limit switches the counting on.
    quota(&["set", &meta, "--uid", "1000", "--capacity", "1"])?;
    quota(&["set", &meta, "--uid", &limited, "--inodes", "3"])?;
    both(&mut volume, programs, |mounts| {
        for (here, there) in [(0, 1), (1, 0)] {
            change(&mounts[here], &mounts[there], &format!("by-{here}"), high(engine))?;
            by_program(programs[here], &mounts[here], &format!("tree-{here}"))?;
        }
        limit(&mounts[0])
    })?;
    let counted = quota(&["check", &meta]).context("JuiceFS counts otherwise")?;
    for owner in [1000, 1001, LIMITED, high(engine)] {
        ensure!(counted.contains(&owner.to_string()), "nothing is on record of {owner}:\n{counted}");
    }
    Ok(())
}

/// One makes, the other changes owners, lengths and names, and takes away.
fn change(here: &Path, there: &Path, name: &str, high: u32) -> anyhow::Result<()> {
    let (made, seen) = (here.join(name), there.join(name));
    std::fs::create_dir(&made)?;
    chown(&made, Some(1000), Some(100))?;
    for number in 0..8 {
        let file = made.join(format!("f{number}"));
        std::fs::write(&file, vec![7; 3000 * number])?;
        chown(&file, Some(1000 + number as u32 % 2), Some(100 + number as u32 % 3))?;
    }
    symlink("f1", made.join("symlink"))?;
    until("the other to see what was made", NAMES, || seen.join("symlink").is_symlink())?;
    let open = |name: &str| std::fs::File::options().write(true).open(seen.join(name));
    open("f1")?.write_all_at(&[9; 10_000], 50_000)?;
    open("f2")?.set_len(1_000_000)?;
    open("f7")?.set_len(100)?;
    rustix::fs::fallocate(open("f4")?, rustix::fs::FallocateFlags::empty(), 0, 40_000)?;
    chown(seen.join("f2"), Some(high), Some(high))?;
    std::fs::hard_link(seen.join("f3"), seen.join("linked"))?;
    std::fs::rename(seen.join("f5"), seen.join("f6"))?;
    std::fs::remove_file(seen.join("f0"))?;
    std::fs::remove_file(seen.join("symlink"))?;
    std::fs::remove_file(seen.join("f3"))?;
    Ok(())
}

/// Clones a tree of several owners, with and without them, and removes it with one of the clones.
fn by_program(program: &Path, mount: &Path, name: &str) -> anyhow::Result<()> {
    let tree = mount.join(name);
    std::fs::create_dir_all(tree.join("deep/deeper"))?;
    for number in 0..30 {
        let file = tree.join(format!("deep/f{number}"));
        std::fs::write(&file, vec![1; 1000 * number])?;
        chown(&file, Some(1000 + number as u32 % 3), Some(200))?;
    }
    let path = |suffix: &str| format!("{}{suffix}", tree.display());
    command(program, &["clone", &path(""), &path("-copy")])?;
    command(program, &["clone", "--preserve", &path(""), &path("-likeness")])?;
    command(program, &["rmr", &path(""), &path("-copy")])?;
    Ok(())
}

/// A user's fourth file is one too many.
fn limit(mount: &Path) -> anyhow::Result<()> {
    let folder: PathBuf = mount.join("limited");
    std::fs::create_dir(&folder)?;
    chown(&folder, Some(1000), Some(100))?;
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let touch = |name: &str| {
        let mut touch = Command::new("touch");
        touch.arg(folder.join(name)).uid(LIMITED).gid(LIMITED);
        touch.stdin(Stdio::null()).stderr(Stdio::null()).status()
    };
    for name in ["a", "b", "c"] {
        ensure!(touch(name)?.success(), "{name} is within the limit");
    }
    ensure!(!touch("d")?.success(), "the fourth file is over the limit");
    std::fs::remove_file(folder.join("b"))?;
    ensure!(touch("d")?.success(), "there is room again");
    Ok(())
}
