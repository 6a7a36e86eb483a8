//! Quotas of directories: what one program sets the other's mount holds, both list the same, and
//! both count the same after each has changed and moved what they count.

use super::both::NAMES;
use crate::rig::{Engine, Volume, command, until};
use anyhow::{Context, ensure};
use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Inodes that each directory may hold.
const INODES: usize = 6;

pub(super) fn run(programs: [&Path; 2], juicefs: &Path, engine: Engine, within: &Path) -> anyhow::Result<()> {
    let mut volume = Volume::new(programs[0], engine, within, &[])?;
    let meta = volume.meta.clone();
    let mut mounts = Vec::new();
    for program in programs {
        // Limits are learned of with a heartbeat.
        mounts.push(volume.mount_by(program, &["--heartbeat", "2s"])?);
    }
    work(programs, juicefs, &meta, &mounts).with_context(|| format!("the mounts said:\n{}", volume.log()))?;
    volume.unmount()?;
    for program in programs {
        for dir in ["/set-by-0", "/set-by-1"] {
            for strict in [&[][..], &["--strict"]] {
                command(program, &[&["quota", "check", &meta, "--path", dir], strict].concat())
                    .with_context(|| format!("{} counts {dir} otherwise", program.display()))?;
            }
        }
        volume.fsck_by(program).with_context(|| format!("fsck of {}", program.display()))?;
    }
    Ok(())
}

fn work(programs: [&Path; 2], juicefs: &Path, meta: &str, mounts: &[PathBuf]) -> anyhow::Result<()> {
    let inodes = INODES.to_string();
    for (setter, other) in [(0, 1), (1, 0)] {
        let dir = format!("set-by-{setter}");
        fs::create_dir_all(mounts[other].join(&dir).join("tree"))?;
        fs::write(mounts[other].join(&dir).join("tree/f"), vec![1; 10_000])?;
        let limits = ["--capacity", "1", "--inodes", &inodes];
        command(
            programs[setter],
            &[&["quota", "set", meta, "--path", &format!("/{dir}")], &limits[..]].concat(),
        )?;
        for exact in [false, true] {
            for mount in [other, setter] {
                let place = mounts[mount].join(&dir);
                // JuiceFS adds what it used every three seconds.
                let exact = exact && programs[mount] != juicefs;
                let mut seen = Ok(false);
                let held = || {
                    seen = made(&place).map(|made| made.is_some_and(|made| !exact || made == INODES - 2));
                    !matches!(seen, Ok(false))
                };
                until("the limit to be held", NAMES, held)
                    .and_then(|()| seen.map(drop))
                    .with_context(|| format!("{dir} through {}", programs[mount].display()))?;
                // What was made and removed before a mount knew of the limit is not counted right.
                let path = format!("/{dir}");
                command(programs[setter], &["quota", "check", meta, "--path", &path, "--repair"])?;
            }
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

/// How many entries a directory takes until its limit is reached; none if it takes many more than
/// that. What was made is gone afterwards.
fn made(dir: &Path) -> anyhow::Result<Option<usize>> {
    let mut made = Vec::new();
    let mut limit = None;
    for number in 0..20 * INODES {
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
