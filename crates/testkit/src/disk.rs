//! A disk that a test can fill.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// A small file system in memory. Dropping it unmounts it.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where it is not permitted; says so.
    pub fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(dir.path()).stderr(Stdio::null()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a small tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(dir))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.path().join("filler")).unwrap();
        let mut piece = 1 << 16;
        while piece > 0 {
            if file.write(&vec![1; piece]).unwrap_or(0) == 0 {
                piece /= 2;
            }
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        std::fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
