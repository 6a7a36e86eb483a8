//! Empties the trash: removes the hour directories that are older than the trash period of the
//! volume.
//!
//! What must stay true: if one hour directory cannot be emptied, the others are still emptied.
//! Metrics show the remaining work.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;
use sluice_types::{Caller, FsError, FsResult, Ino, Name, Time};

use crate::{
    batch::Interrupt,
    engine::Scan,
    expiry::TrashExpiry,
    meta::Meta,
    op::At,
    ops::{lookup::Lookup, removal::hour_name},
    schema::Row,
    tree::Progress,
};

/// Hours emptied at once, if the engine has that many lanes.
const AT_ONCE: usize = 4;

impl Meta {
    /// The progress of this client in emptying the trash.
    pub fn trash_expiry(&self) -> TrashExpiry {
        self.expiry.progress()
    }

    /// Empties and removes the hour directories of the trash that are older at `now`, Unix seconds,
    /// than the volume keeps them, several at the same time. If one fails, the others are emptied
    /// all the same.
    ///
    /// # Errors
    /// The first one, after all directories were tried.
    pub fn clean_trash(&self, now: i64, interrupt: &Interrupt, progress: Progress<'_>) -> FsResult<()> {
        let hours = self.due_hours(now, interrupt)?;
        self.expiry.due(hours.len());
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Ok(())));
        let work = || {
            while let Some(hour) = hours.get(next.fetch_add(1, Ordering::Relaxed)) {
                let removed = self.empty_hour(hour, interrupt, progress);
                self.expiry.hour_done();
                if let Err(error) = removed {
                    let mut failed = failed.lock();
                    *failed = std::mem::replace(&mut *failed, Ok(())).and(Err(error));
                }
            }
        };
        let threads = AT_ONCE.min(self.engine.limits().lanes).min(hours.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        failed.into_inner()
    }

    /// Entries that [`Self::clean_trash`] will remove at `now`, hour directories included. What
    /// lies below a directory that was rebuilt in the trash is not counted.
    ///
    /// # Errors
    /// The engine's.
    pub fn due_trash(&self, now: i64, interrupt: &Interrupt) -> FsResult<u64> {
        let mut count = 0;
        for hour in self.due_hours(now, interrupt)? {
            let found = self.read(&Lookup(At::new(Ino::TRASH, hour)), interrupt);
            let (dir, _) = match found {
                Err(FsError::NotFound) => continue,
                found => found?,
            };
            count += 1;
            self.each_page(Scan::Entries { dir, nodes: false }, interrupt, |rows| {
                count += rows.len() as u64;
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// The hours that are due, the oldest first.
    fn due_hours(&self, now: i64, interrupt: &Interrupt) -> FsResult<Vec<Name>> {
        let days = self.env.format().trash_days;
        let limit = hour_name(Time { sec: now - (24 * days + 2) * 3600, nsec: 0 });
        let mut hours = Vec::new();
        self.each_page(Scan::Entries { dir: Ino::TRASH, nodes: false }, interrupt, |rows| {
            hours.extend(rows.into_iter().filter_map(|row| match row {
                Row::Entry(_, name, _) if name.as_ref() < limit.as_bytes() => Some(name),
                _ => None,
            }));
            Ok(())
        })?;
        hours.sort_unstable();
        hours.dedup();
        Ok(hours)
    }

    fn empty_hour(&self, hour: &Name, interrupt: &Interrupt, progress: Progress<'_>) -> FsResult<()> {
        if interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        let count = |entries| {
            self.expiry.removed(entries);
            progress(entries);
        };
        let at = At::new(Ino::TRASH, hour.clone());
        match self.remove_tree(&at, true, &Caller::client(), interrupt, &count) {
            // Another client was faster.
            Err(FsError::NotFound) => Ok(()),
            removed => removed,
        }
    }
}
