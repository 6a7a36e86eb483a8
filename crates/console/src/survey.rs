//! The state of a volume, read periodically from its metadata.
//!
//! What must stay true: reads take only a small part of the time. Cheap data is read each time.
//! Long reads are done less often the longer they take.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use sluice_meta::{Interrupt, Meta, engine::Engine};
use sluice_types::{Clock as _, FsResult, SystemClock};

use crate::{
    backlog::{self, Deletions, Trash},
    clients::{self, Clients},
    directories::{self, Directories},
    group::{self, Group},
    quotas::{self, Paths, Quotas},
    reports::{self, Reports},
    settings::Settings,
};

/// Most clients of a volume that are kept.
const CLIENTS: usize = 10_000;

/// A volume that is open, only to be read.
pub struct Opened {
    /// Its database.
    pub engine: Arc<dyn Engine>,
    /// Its metadata.
    pub meta: Arc<Meta>,
}

/// What a volume holds, and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Space {
    pub(crate) used_bytes: i64,
    /// `None` for no limit.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) used_inodes: i64,
    /// `None` for no limit.
    pub(crate) max_inodes: Option<u64>,
}

/// What was read of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Unix seconds.
    pub(crate) at: i64,
    pub(crate) settings: Settings,
    pub(crate) space: Space,
    pub(crate) clients: Arc<Clients>,
    pub(crate) trash: Arc<Trash>,
    pub(crate) deletions: Arc<Deletions>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) directories: Arc<Directories>,
    pub(crate) group: Arc<Group>,
    pub(crate) reports: Arc<Reports>,
    /// What could not be read, and why; of that the last is kept.
    pub(crate) unread: Vec<String>,
}

/// Something that is read from time to time.
struct Turn {
    every: Duration,
    /// How often in the time that reading takes.
    part: u32,
    due: Option<Instant>,
}

impl Turn {
    fn new(every: Duration, part: u32) -> Self {
        Self { every, part, due: None }
    }

    /// Reads if it is time to; else what was `known` before. What cannot be read is noted in
    /// `unread` by its name.
    fn take<T: Default>(
        &mut self,
        known: Option<&Arc<T>>,
        (name, unread): (&str, &mut Vec<String>),
        read: impl FnOnce() -> FsResult<T>,
    ) -> Arc<T> {
        let known = known.cloned();
        if let (Some(known), Some(due)) = (&known, self.due)
            && Instant::now() < due
        {
            return Arc::clone(known);
        }
        let begun = Instant::now();
        match read() {
            Ok(read) => {
                self.due = Some(Instant::now() + self.every.max(begun.elapsed() * self.part));
                Arc::new(read)
            }
            Err(error) => {
                unread.push(format!("{name}: {error}"));
                known.unwrap_or_default()
            }
        }
    }
}

/// Reads a volume again and again.
pub(crate) struct Surveyor {
    clients: Turn,
    group: Turn,
    trash: Turn,
    deletions: Turn,
    quotas: Turn,
    directories: Turn,
    reports: Turn,
    paths: Paths,
    forget_paths: Instant,
}

/// How long the path of a directory is believed.
const PATHS: Duration = Duration::from_mins(10);

impl Surveyor {
    /// Counts what waits to be deleted, and quotas, each `every`, and directories more seldom.
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            clients: Turn::new(Duration::ZERO, 5),
            group: Turn::new(Duration::ZERO, 5),
            trash: Turn::new(every, 20),
            deletions: Turn::new(every, 20),
            quotas: Turn::new(every, 20),
            directories: Turn::new(every * 5, 50),
            reports: Turn::new(every, 20),
            paths: Paths::default(),
            forget_paths: Instant::now() + PATHS,
        }
    }

    /// Reads a volume. `before` is what was read the last time.
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn read(
        &mut self,
        opened: &Opened,
        before: Option<&Survey>,
        interrupt: &Interrupt,
    ) -> Result<Survey, String> {
        let Opened { engine, meta } = opened;
        // Without a session it only reads: the settings, the usage, the quotas.
        match meta.beat() {
            Ok(Ok(())) => {}
            Ok(Err(ended)) => return Err(ended.to_string()),
            Err(error) => return Err(error.to_string()),
        }
        Ok(self.details(engine.as_ref(), meta, before, interrupt))
    }

    fn details(
        &mut self,
        engine: &dyn Engine,
        meta: &Meta,
        before: Option<&Survey>,
        interrupt: &Interrupt,
    ) -> Survey {
        if Instant::now() > self.forget_paths {
            self.paths.clear();
            self.forget_paths = Instant::now() + PATHS;
        }
        let at = SystemClock.now().sec;
        let format = meta.env().format();
        let (used_bytes, used_inodes) = meta.env().used();
        let limit = |limit: u64| (limit > 0).then_some(limit);
        let space = Space {
            used_bytes: used_bytes.max(0),
            max_bytes: limit(format.capacity),
            used_inodes: used_inodes.max(0),
            max_inodes: limit(format.inodes),
        };
        let (mut unread, paths) = (Vec::new(), &mut self.paths);
        Survey {
            at,
            settings: Settings::of(&format),
            space,
            clients: self.clients.take(
                before.map(|before| &before.clients),
                ("the sessions of clients", &mut unread),
                || clients::read(meta, CLIENTS, at, interrupt),
            ),
            trash: self.trash.take(before.map(|before| &before.trash), ("the trash", &mut unread), || {
                backlog::trash(engine, meta, interrupt)
            }),
            deletions: self.deletions.take(
                before.map(|before| &before.deletions),
                ("what waits to be deleted", &mut unread),
                || backlog::deletions(meta, interrupt),
            ),
            quotas: self.quotas.take(
                before.map(|before| &before.quotas),
                ("the quotas", &mut unread),
                || quotas::read(meta, paths, interrupt),
            ),
            directories: self.directories.take(
                before.map(|before| &before.directories),
                ("the statistics of directories", &mut unread),
                || directories::read(engine, meta, at, interrupt),
            ),
            group: self.group.take(
                before.map(|before| &before.group),
                ("the members of cache groups", &mut unread),
                || group::read(meta, interrupt),
            ),
            reports: self.reports.take(
                before.map(|before| &before.reports),
                ("the findings of fsck and gc", &mut unread),
                || reports::read(meta, interrupt),
            ),
            unread,
        }
    }
}
