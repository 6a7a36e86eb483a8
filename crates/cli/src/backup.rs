//! Starts periodic backups of the metadata of a mounted volume.
//!
//! What must stay true: a failed backup does not affect the mount. So a separate process makes the
//! backup, and the mount process keeps no part of it in memory. The backup process ends when the
//! mount process ends.

use std::{
    env,
    ffi::OsString,
    process::{Command, Stdio},
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::ValueEnum as _;
use sluice_meta::{Interrupt, Meta, ops::backup::ClaimBackup};
use sluice_object::StoreConfig;
use sluice_types::{Clock as _, Name, Rng, SystemClock, Time, job};
use sluice_vfs::{Families, MoreMetrics};

use crate::{arguments, background, engines, flags::BackupFlags, rotation, sizes};

/// Sets another interval, of any length: for tests.
const EVERY: &str = "SLUICE_TEST_BACKUP_META";

/// The backups of a mount.
#[derive(Clone)]
pub(crate) struct Backups {
    interval: Duration,
    stamp: &'static str,
    /// What the process that makes one is called with, without the time.
    arguments: Vec<OsString>,
    /// Unix seconds of the last one that this mount made, 0 before the first.
    last: Arc<AtomicI64>,
}

impl Backups {
    /// The backups of the volume at `meta_url`, which go to `store`; `None` if there are none.
    ///
    /// # Errors
    /// A relative path cannot be made absolute.
    pub(crate) fn new(flags: &BackupFlags, meta_url: &str, store: &StoreConfig) -> Result<Option<Self>> {
        let tested = env::var(EVERY).ok().and_then(|text| sizes::duration(&text).ok());
        let interval = tested.unwrap_or(flags.backup_meta);
        if interval.is_zero() {
            return Ok(None);
        }
        let format = flags.backup_format;
        let mut arguments: Vec<OsString> = vec!["sluice".into(), "backup".into()];
        let timeout = format!("{}ms", store.retry.put_timeout.as_millis());
        let limit = store.limits.upload_mbps.to_string();
        // 0 tries are as many as there is time for.
        let retries = store.retry.attempts.checked_sub(1).map_or_else(String::new, |n| n.to_string());
        for (flag, value) in [
            ("--storage", store.storage.as_str()),
            ("--bucket", &store.bucket),
            ("--storage-class", &store.storage_class),
            ("--upload-limit", &limit),
            ("--put-timeout", &timeout),
            ("--io-retries", &retries),
            ("--format", format.to_possible_value().as_ref().map_or("", |value| value.get_name())),
        ] {
            if !value.is_empty() {
                arguments.extend([flag.into(), value.into()]);
            }
        }
        if flags.backup_skip_trash {
            arguments.push("--skip-trash".into());
        }
        arguments.push(engines::absolute(meta_url)?.into());
        Ok(Some(Self { interval, stamp: format.stamp(), arguments, last: Arc::default() }))
    }

    /// Adds when the last one was made, if there was one.
    pub(crate) fn metrics(&self) -> MoreMetrics {
        let last = Arc::clone(&self.last);
        Arc::new(move |families: &mut Families| {
            let last = last.load(Ordering::Relaxed);
            if last > 0 {
                let title =
                    ("sluice_last_backup_timestamp_seconds", "When this mount last backed up the metadata.");
                families.gauge(title, last as f64);
            }
        })
    }

    /// Makes them as long as `meta` lives. What goes wrong is logged.
    pub(crate) fn start(&self, meta: &Arc<Meta>) {
        let (backups, meta) = (self.clone(), Arc::downgrade(meta));
        let run = move || backups.run(&meta);
        if let Err(error) =
            thread::Builder::new().name("sluice-backup".into()).spawn(job("sluice-backup", run))
        {
            tracing::error!(%error, "the mount works, but its metadata are not backed up");
        }
    }

    fn run(&self, meta: &Weak<Meta>) {
        let mut rng = Rng::from_os();
        loop {
            // Clients that were started together do not ask together.
            let pause = self.interval / 10;
            let jitter = Duration::from_nanos(rng.below(pause.as_nanos() as u64 / 10 + 1));
            thread::sleep(pause * 19 / 20 + jitter);
            let Some(meta) = meta.upgrade() else { return };
            let now = SystemClock.now();
            let done = self.is_due(&meta, now).and_then(|due| if due { self.make(now) } else { Ok(()) });
            if let Err(error) = done {
                tracing::warn!("the metadata were not backed up: {error:#}");
            }
        }
    }

    /// Whether it is this client's turn.
    fn is_due(&self, meta: &Meta, now: Time) -> Result<bool> {
        let stamp = Name::new(self.stamp.as_bytes())?;
        Ok(meta.run(ClaimBackup { stamp, now, interval: self.interval }, &Interrupt::never())?)
    }

    /// Has another process make one, and waits for its end.
    fn make(&self, now: Time) -> Result<()> {
        // This very program, whatever lies at its path by now.
        let mut command = Command::new("/proc/self/exe");
        let mut arguments = self.arguments.clone();
        arguments.extend(["--time".into(), now.utc(rotation::STAMP).into()]);
        arguments::give(&mut command, &arguments);
        background::no_child(&mut command);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        if !status.success() {
            bail!("the process that should do it ended with {status}");
        }
        self.last.store(now.sec, Ordering::Relaxed);
        Ok(())
    }
}
