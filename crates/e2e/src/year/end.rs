//! What must hold at the end.

use super::Run;
use crate::rig::command;
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

impl Run<'_> {
    /// Both programs find nothing wrong, no byte is lost, and when all is removed no block is left.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.clock.set_day(self.plan.days + 3)?;
        let mount = self.volume.mount(&[])?;
        self.compare(&mount)?;
        self.volume.unmount()?;
        let meta = self.volume.meta.clone();
        self.volume.command(&["gc", &meta, "--delete"])?;
        let limits = [&["--path", "/tree"][..], &["--uid", "2"], &["--gid", "3"]];
        let limits = if self.plan.days > 1 { &limits[..] } else { &[] };
        self.sound(&self.plan.program, limits).context("after gc --delete")?;
        if let Some(juicefs) = &self.plan.juicefs {
            // JuiceFS counts no symbolic links and special files of users and groups.
            self.sound(juicefs, &limits[..limits.len().min(1)]).context("the other program")?;
        }
        let mount = self.volume.mount(&[])?;
        let tree = mount.join("tree");
        self.volume.command(&["rmr", &tree.to_string_lossy()])?;
        self.volume.unmount()?;
        self.clock.set_day(self.plan.days + 6)?;
        self.volume.command(&["gc", &meta, "--delete"])?;
        self.volume.mount(&[])?;
        ensure!(!has_trash(&mount), "the trash of days that are over is still there");
        self.volume.unmount()?;
        let left = blocks(&self.volume.path("objects"))?;
        ensure!(left.is_empty(), "{} blocks are left of an empty volume: {:?}", left.len(), left.first());
        self.sound(&self.plan.program, limits.get(1..).unwrap_or_default()).context("the empty volume")
    }

    /// A program finds nothing wrong, nothing leaked, and all usage as it is counted.
    fn sound(&self, program: &Path, limits: &[&[&str]]) -> anyhow::Result<()> {
        let meta = self.volume.meta.as_str();
        let program = program.to_string_lossy();
        // Objects carry times of the machine's own clock.
        let ask = |arguments: &[&str]| {
            let arguments = [&["JFS_GC_SKIPPEDTIME=0", &*program], arguments].concat();
            command(Path::new("env"), &arguments)
        };
        ask(&["fsck", meta])?;
        let found = ask(&["gc", meta])?;
        ensure!(!leaks(&found), "gc found something:\n{found}");
        for what in limits {
            ask(&[&["quota", "check", meta], *what].concat())?;
        }
        Ok(())
    }
}

fn has_trash(mount: &Path) -> bool {
    fs::read_dir(mount.join(".trash")).is_ok_and(|mut hours| hours.next().is_some())
}

/// Whether a `gc` speaks of leaked objects.
fn leaks(said: &str) -> bool {
    said.lines().any(|line| {
        let line = line.to_lowercase();
        line.contains("leaked") && !line.contains("0 leaked") && !line.contains("leaked: 0")
    })
}

/// Blocks of files below a folder of objects.
fn blocks(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.path().components().any(|part| part.as_os_str() == "chunks") {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}
