//! Failures to store data after its write was acknowledged, and the handles to which they were
//! reported.
//!
//! What must stay true: every open file that could have written the data gets the error at its next
//! fsync, even if another open file has already reported it. One report is not enough: when a child
//! process closes an inherited descriptor, the kernel flushes the file, and the child usually
//! ignores the result.

use sluice_types::{FsError, FsResult};

/// The failures of one file, counted.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) count: u64,
    /// How many were reported to any handle.
    pub(super) reported: u64,
    last: Option<FsError>,
}

impl Failures {
    pub(super) fn add(&mut self, error: FsError) {
        self.count += 1;
        self.last = Some(error);
    }

    /// Reports the last failure after the first `since`. All of them count as reported from now on.
    pub(super) fn report(&mut self, since: u64) -> FsResult<()> {
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

    /// Reports the last failure that was not reported yet.
    pub(super) fn report_new(&mut self) -> FsResult<()> {
        self.report(self.reported)
    }

    /// The last failure that was not reported yet. It stays unreported.
    pub(super) fn unreported(&self) -> FsResult<()> {
        self.last_since(self.reported)
    }

    /// Whether there are failures that were not reported yet.
    pub(super) fn any_unreported(&self) -> bool {
        self.count > self.reported
    }
}
