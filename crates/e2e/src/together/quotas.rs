//! Quotas of directories: the mount of each program enforces the quotas that the other sets. Both
//! list the same quotas. Both count the same usage after each has changed and moved files.

use super::both::NAMES;
use crate::rig::{Engine, Volume, command, until};
use anyhow::{Context, ensure};
use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Directories with limits; the first is set by the first program, the second by the other.
const DIRS: [&str; 2] = ["set-by-0", "set-by-1"];
/// Inodes that each may hold.
const INODES: usize = 6;

pub(super) fn run(programs: [&Path; 2], engine: Engine, within: &Path) -> anyhow::Result<()> {
    let mut volume = Volume::new(programs[0], engine, within, &[])?;
    let meta = volume.meta.clone();
    let mount = volume.mount(&[])?;
    for dir in DIRS {
        fs::create_dir_all(mount.join(dir).join("tree"))?;
        fs::write(mount.join(dir).join("tree/f"), vec![1; 10_000])?;
    }
    volume.unmount()?;
    // A mount counts nothing for a limit that it does not know yet: both begin with all limits.
    for (dir, setter) in DIRS.iter().zip(programs) {
        let (path, inodes) = (format!("/{dir}"), INODES.to_string());
        command(setter, &["quota", "set", &meta, "--path", &path, "--capacity", "1", "--inodes", &inodes])?;
    }
    let mut mounts = Vec::new();
    for program in programs {
        mounts.push(volume.mount_by(program, &["--heartbeat", "2s"])?);
    }
    work(programs, &meta, &mounts).with_context(|| format!("the mounts said:\n{}", volume.log()))?;
    volume.unmount()?;
    for program in programs {
        for dir in DIRS {
            for strict in [&[][..], &["--strict"]] {
                let path = format!("/{dir}");
                command(program, &[&["quota", "check", &meta, "--path", &path], strict].concat())
                    .with_context(|| format!("{} counts {dir} otherwise", program.display()))?;
            }
        }
        volume.fsck_by(program).with_context(|| format!("fsck of {}", program.display()))?;
    }
    Ok(())
}

fn work(programs: [&Path; 2], meta: &str, mounts: &[PathBuf]) -> anyhow::Result<()> {
    for dir in DIRS {
        for (mount, program) in mounts.iter().zip(programs) {
            let place = mount.join(dir);
            let mut seen = Ok(None);
            // JuiceFS tells of what it used, and learns of what others did, after some seconds.
            let held = || {
                seen = made(&place);
                seen.as_ref().map_or(true, |made| *made == Some(INODES - 2))
            };
            until("the limit to be held", NAMES, held)
                .map_err(anyhow::Error::from)
                .and_then(|()| seen.map(drop))
                .with_context(|| format!("{dir} through {}", program.display()))?;
        }
    }
    // Each moves a tree from one to the other, and changes it there.
    for (here, there) in [(0, 1), (1, 0)] {
        let tree = format!("set-by-{there}/from-{here}");
        let from = mounts[here].join(format!("set-by-{here}/tree"));
        until("what was made to show", NAMES, || from.join("f").is_file())?;
        fs::rename(&from, mounts[here].join(&tree))?;
        until("the move to show", NAMES, || mounts[there].join(&tree).is_dir())?;
        fs::write(mounts[there].join(&tree).join("g"), vec![2; 5000])?;
    }
    let mut seen = Vec::new();
    until("both to list the same", NAMES, || {
        seen = programs.iter().map(|program| listed(program, meta)).collect();
        matches!(seen.as_slice(), [Ok(one), Ok(other)] if one == other && one.len() == 2)
    })
    .with_context(|| format!("{seen:?}"))
}

/// How many entries a directory takes until its limit is reached; none if it takes more than
/// that. What was made is gone afterwards.
fn made(dir: &Path) -> anyhow::Result<Option<usize>> {
    let mut made = Vec::new();
    let mut limit = None;
    for number in 0..=INODES {
        let file = dir.join(format!("limit-{number}"));
        match fs::File::create(&file) {
            Ok(_) => made.push(file),
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
                // The tree and its file were there.
                limit = Some(made.len());
                break;
            }
            Err(error) => return Err(error).context("what is neither success nor EDQUOT"),
        }
    }
    made.iter().try_for_each(fs::remove_file)?;
    Ok(limit)
}

/// Path, limit of inodes and inodes in use of each quota.
fn listed(program: &Path, meta: &str) -> anyhow::Result<Vec<[String; 3]>> {
    let table = command(program, &["quota", "list", meta])?;
    let mut quotas = Vec::new();
    for line in table.lines().filter(|line| line.contains("| /") || line.contains("|/")) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == 7, "no line of a table of quotas: {line}");
        quotas.push([cells[0].to_owned(), cells[4].to_owned(), cells[5].to_owned()]);
    }
    quotas.sort_unstable();
    Ok(quotas)
}
