//! What happens on a day.

use super::Run;
use crate::{
    compare::{Links, Side, generate},
    rig::command,
};
use anyhow::ensure;
use rand::{Rng as _, seq::IndexedRandom as _};
use std::{fs, path::PathBuf};

/// Most folders of past days; the oldest goes when there are more.
const KEPT: usize = 12;

impl Run<'_> {
    /// One day: mounts, work, and in the evening what an operator does.
    pub(super) fn day(&mut self, number: u64) -> anyhow::Result<()> {
        let mounts = [self.volume.mount(&[])?, self.volume.mount(&[])?];
        fs::create_dir_all(mounts[0].join("tree"))?;
        self.compare(&mounts[number as usize % 2])?;
        self.work(number, &mounts)?;
        self.limit(number)?;
        self.clear(&mounts)?;
        self.compare(&mounts[0])?;
        if self.rng.random_bool(0.3) {
            // What is closed is stored.
            self.volume.kill();
        } else {
            self.volume.unmount()?;
        }
        self.evening(number)
    }

    /// Random operations in a folder of the day.
    fn work(&mut self, number: u64, mounts: &[PathBuf; 2]) -> anyhow::Result<()> {
        let name = format!("day-{number}");
        let place = if self.rng.random_bool(0.5) { &mounts[0] } else { &mounts[1] };
        let roots = [self.trusted().join(&name), place.join("tree").join(&name)];
        for root in &roots {
            fs::create_dir(root)?;
        }
        let mut sides = roots.map(|root| Side::new(root, Links::None));
        for op in generate(self.plan.seed ^ number, self.plan.operations, self.can) {
            let [expected, got] = [0, 1].map(|side| sides[side].apply(&op));
            ensure!(expected == got, "{op:?}\n  expected {expected:?}\n  got      {got:?}");
            for path in op.paths() {
                let [expected, got] = [0, 1].map(|side| sides[side].facts(path));
                ensure!(
                    expected == got,
                    "{path:?} after {op:?}\n  expected {expected:?}\n  got      {got:?}"
                );
            }
        }
        sides.iter_mut().for_each(Side::close_all);
        self.folders.push(name);
        Ok(())
    }

    /// Limits come and go.
    fn limit(&mut self, number: u64) -> anyhow::Result<()> {
        let meta = self.volume.meta.clone();
        let quota = |arguments: &[&str]| self.volume.command(&[&["quota"], arguments].concat());
        if number == 1 {
            quota(&["set", &meta, "--uid", "2", "--inodes", "1000000"])?;
            quota(&["set", &meta, "--gid", "3", "--capacity", "1000"])?;
            quota(&["set", &meta, "--path", "/tree", "--capacity", "1000"])?;
        }
        if self.rng.random_bool(0.3)
            && let Some(folder) = self.folders.choose(&mut self.rng)
        {
            quota(&["set", &meta, "--path", &format!("/tree/{folder}"), "--inodes", "1000000"])?;
            self.limited.push(folder.clone());
        }
        if self.rng.random_bool(0.1)
            && let Some(folder) = self.limited.pop()
            && self.folders.contains(&folder)
        {
            quota(&["delete", &meta, "--path", &format!("/tree/{folder}")])?;
        }
        Ok(())
    }

    /// What is old goes, and folders move and are copied.
    fn clear(&mut self, mounts: &[PathBuf; 2]) -> anyhow::Result<()> {
        let tree = mounts[0].join("tree");
        while self.folders.len() > KEPT || self.folders.len() > 2 && self.rng.random_bool(0.2) {
            let folder = self.folders.remove(0);
            fs::remove_dir_all(self.trusted().join(&folder))?;
            let place = tree.join(&folder);
            if self.rng.random_bool(0.5) {
                fs::remove_dir_all(&place)?;
            } else {
                self.volume.command(&["rmr", &place.to_string_lossy()])?;
            }
        }
        if self.folders.len() > 2 && self.rng.random_bool(0.4) {
            // Into another folder, with its limit, or out of that.
            let (inner, outer) = (self.folders.remove(0), self.folders[0].clone());
            let moved = format!("{outer}/{inner}");
            for root in [self.trusted(), tree.clone()] {
                fs::rename(root.join(&inner), root.join(&moved))?;
            }
        }
        Ok(())
    }

    /// What an operator does while nobody works.
    fn evening(&mut self, number: u64) -> anyhow::Result<()> {
        let meta = self.volume.meta.clone();
        if self.rng.random_bool(0.3) {
            self.volume.command(&["gc", &meta, "--delete"])?;
        }
        if self.rng.random_bool(0.2) {
            self.volume.command(&["gc", &meta, "--compact"])?;
        }
        if self.rng.random_bool(0.3) {
            let form: &[&str] = if self.rng.random_bool(0.5) { &["--binary"] } else { &[] };
            let dump = self.volume.path("backup.gz").to_string_lossy().into_owned();
            self.volume.command(&[&["dump"], form, &[&meta, &dump]].concat())?;
            // A backup counts once it has been loaded.
            let copy = format!("sqlite3://{}", self.volume.path(&format!("copy-{number}.db")).display());
            self.volume.command(&[&["load"], form, &[&copy, &dump]].concat())?;
            command(self.clock.program(), &["fsck", &copy])?;
        }
        if self.rng.random_bool(0.15)
            && let Some(&engine) = self.plan.engines.choose(&mut self.rng)
        {
            self.moves += 1;
            self.volume.move_to(engine, &format!("engine-{}", self.moves))?;
            self.engine = engine;
        }
        Ok(())
    }
}
