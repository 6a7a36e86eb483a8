//! Freed space: the `gc` of each program reports no object of the other program as leaked. After
//! `gc` of both, no data is missing.

use super::both::both;
use crate::{
    pattern,
    rig::{Engine, Volume, command},
};
use anyhow::{Context, ensure};
use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) fn run(
    [sluice, juicefs]: [&Path; 2],
    engine: Engine,
    within: &Path,
    make: impl Fn(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for days in ["0", "1"] {
        let mut volume = Volume::new(sluice, engine, within, &["--trash-days", days])?;
        for (round, cleaner) in [sluice, juicefs, sluice].into_iter().enumerate() {
            both(&mut volume, [sluice, juicefs], |mounts| {
                for (maker, mount) in mounts.iter().enumerate() {
                    make(&mount.join(format!("tree-{round}-{maker}")))?;
                    rewrite(&mount.join(format!("pieces-{round}-{maker}")))?;
                }
                // Each removes what the other made.
                let (folder, text) =
                    (format!("tree-{round}-0/folder"), format!("tree-{round}-1/folder/text"));
                std::fs::remove_dir_all(mounts[1].join(&folder)).context(folder)?;
                std::fs::remove_file(mounts[0].join(&text)).context(text)
            })?;
            age(&volume).context("to make objects look older")?;
            leaked(&volume, [sluice, juicefs], 0)?;
            command(cleaner, &["gc", "--compact", "--delete", &volume.meta])?;
            age(&volume)?;
            leaked(&volume, [sluice, juicefs], 0)
                .with_context(|| format!("after gc of {}", cleaner.display()))?;
            for program in [sluice, juicefs] {
                volume.fsck_by(program).with_context(|| format!("after gc of {}", cleaner.display()))?;
            }
        }
        plant(&volume)?;
        age(&volume)?;
        leaked(&volume, [sluice, juicefs], 1).context("one was put there")?;
        command(sluice, &["gc", "--delete", &volume.meta])?;
        leaked(&volume, [sluice, juicefs], 0).context("it was deleted")?;
    }
    Ok(())
}

/// A file of many small pieces, some over others.
fn rewrite(path: &Path) -> anyhow::Result<()> {
    let file = File::create(path)?;
    for piece in 0..12 {
        file.write_all_at(&pattern::bytes(piece, 5000), piece * 3000)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Each program's `gc` must find so many objects leaked.
fn leaked(volume: &Volume, programs: [&Path; 2], count: u64) -> anyhow::Result<()> {
    for program in programs {
        let said = command(program, &["gc", &volume.meta])?;
        ensure!(said.contains(&format!(" {count} leaked")), "{}: {said}", program.display());
    }
    Ok(())
}

/// Puts an object where a block of a slice would be that there never was.
fn plant(volume: &Volume) -> anyhow::Result<()> {
    let folder = volume.path("objects/e2e-volume/chunks/777/777777");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("777777777_0_5"), "stray")?;
    Ok(())
}

/// Makes all objects look older than those that are left alone.
fn age(volume: &Volume) -> anyhow::Result<()> {
    for block in blocks(&volume.path("objects"))? {
        let block = File::options().write(true).open(block)?;
        block.set_modified(block.metadata()?.modified()? - Duration::from_hours(2))?;
    }
    Ok(())
}

/// Files below a folder.
fn blocks(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(blocks(&path)?) } else { found.push(path) }
    }
    Ok(found)
}
