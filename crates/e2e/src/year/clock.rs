//! A program whose clock shows another day: `libfaketime` replaces the machine's clock for it. A
//! running process sees the new day within a second.

use anyhow::{Context, ensure};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Where Debian's package puts it, for any machine.
const LIBRARY: &str = "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1";

/// The clock, and the program that believes it.
pub(super) struct Clock {
    program: PathBuf,
    day: PathBuf,
}

impl Clock {
    /// A clock at day 0 for `program`, with its files in `folder`.
    ///
    /// # Errors
    /// When the files cannot be written, or the clock cannot be moved here.
    pub(super) fn new(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let clock = Self { program: folder.join("sluice"), day: folder.join("day") };
        // A deadline is no time of day: what measures spans is left alone. So are times of files.
        let script = format!(
            "#!/bin/sh\n\
             export LD_PRELOAD={LIBRARY} FAKETIME_TIMESTAMP_FILE='{}' FAKETIME_CACHE_DURATION=1\n\
             export FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1 NO_FAKE_STAT=1\n\
             export JFS_GC_SKIPPEDTIME=0\n\
             exec '{}' \"$@\"\n",
            clock.day.display(),
            program.display(),
        );
        fs::write(&clock.program, script)?;
        fs::set_permissions(&clock.program, fs::Permissions::from_mode(0o755))?;
        clock.set_day(400)?;
        let probe = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("LD_PRELOAD={LIBRARY} FAKETIME='+400d' date +%s; date +%s"))
            .output()?;
        let times = String::from_utf8_lossy(&probe.stdout);
        let times: Vec<i64> = times.split_whitespace().filter_map(|time| time.parse().ok()).collect();
        ensure!(
            matches!(times[..], [moved, now] if moved - now > 300 * 86400),
            "the clock cannot be moved; make setup installs libfaketime: {}",
            String::from_utf8_lossy(&probe.stderr)
        );
        clock.set_day(0)?;
        Ok(clock)
    }

    /// The program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Moves the clock to the same time of another day.
    pub(super) fn set_day(&self, day: u64) -> anyhow::Result<()> {
        // Whoever reads it must not see half of it.
        let new = self.day.with_extension("new");
        fs::write(&new, format!("+{day}d\n"))?;
        fs::rename(&new, &self.day).context("cannot move the clock")
    }
}
