//! How much data waits for deletion, as far as this can be read at low cost.

use sluice_types::{FsResult, Ino, Interrupt, Time};

use crate::{engine::Scan, meta::Meta, schema::Row};

/// What lies in the trash, by hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashBacklog {
    /// Hours of which something is there.
    pub hours: u64,
    /// Those of them that should be gone, since the volume keeps its trash for less.
    pub overdue: u64,
    /// Age of the oldest, in seconds; 0 if there is none.
    pub oldest: u64,
}

impl Meta {
    /// What lies in the trash. As many records are read as there are hours in it.
    pub fn trash_backlog(&self, interrupt: &Interrupt) -> FsResult<TrashBacklog> {
        let now = self.env().clock.now();
        // An hour is over when it is removed, and the removal may take another hour.
        let kept = (24 * self.env().format().trash_days + 2) * 3600;
        let mut backlog = TrashBacklog::default();
        self.each_page(Scan::Entries { dir: Ino::TRASH, nodes: false }, interrupt, |rows| {
            for row in rows {
                let Row::Entry(_, name, _) = row else { continue };
                let hour =
                    std::str::from_utf8(&name).ok().and_then(|name| Time::from_utc("%Y-%m-%d-%H", name));
                let Some(hour) = hour else { continue };
                let age = now.since(hour).as_secs();
                backlog.hours += 1;
                backlog.overdue += u64::from(age > kept.max(0) as u64 + 3600);
                backlog.oldest = backlog.oldest.max(age);
            }
            Ok(())
        })?;
        Ok(backlog)
    }
}
