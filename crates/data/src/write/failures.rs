//! Failures of data that a write had already taken, and who was told of them.
//!
//! What must stay true: every open file that could have written the data is told by its next fsync,
//! whoever else was told before. A descriptor that a child inherits is flushed as the child closes
//! it, and nobody looks at what that answers.

use sluice_types::{FsError, FsResult};

/// The failures of one file, counted.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) count: u64,
    /// How many somebody was told of.
    pub(super) reported: u64,
    last: Option<FsError>,
}

impl Failures {
    pub(super) fn add(&mut self, error: FsError) {
        self.count += 1;
        self.last = Some(error);
    }

    /// The last of those behind the first `since`, of which somebody knows from now on.
    pub(super) fn tell(&mut self, since: u64) -> FsResult<()> {
        let last = self.last_since(since);
        if last.is_err() {
            self.reported = self.count;
        }
        last
    }

    pub(super) fn last_since(&self, since: u64) -> FsResult<()> {
        match &self.last {
            Some(error) if self.count > since => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The last of those of which nobody was told.
    pub(super) fn tell_new(&mut self) -> FsResult<()> {
        self.tell(self.reported)
    }

    /// The last of those of which nobody was told; that stays so.
    pub(super) fn untold(&self) -> FsResult<()> {
        self.last_since(self.reported)
    }

    /// Whether there are some of which nobody was told.
    pub(super) fn are_new(&self) -> bool {
        self.count > self.reported
    }
}
