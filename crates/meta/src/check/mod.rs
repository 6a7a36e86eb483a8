//! Checks whether the nodes, entries, chunks and counts of a volume agree, and repairs them.
//!
//! What must stay true: a change that is under way is never reported as a fault. A finding is
//! reported only if two consecutive surveys find it. A repair changes only records that still are
//! as they were found.
//!
//! The memory use is that of at most eight sorts ([`SortSpace`]), for any size of the volume. The
//! rest is on disk: about 100 bytes for each file with its entry and its slice.

mod cycles;
mod dirs;
mod files;
mod finding;
mod inodes;
mod lookups;
mod place;
mod record;
mod repair;
mod report;
mod slices;
mod subtree;
mod survey;
mod totals;

pub use files::SliceFiles;
pub use finding::{Counted, Finding, Severity};
pub use repair::Repair;
pub use report::{Findings, Report, Slices};

use sluice_types::{FsResult, Ino};

use crate::{batch::Interrupt, meta::Meta, sort::SortSpace, tree::Progress};
use report::Candidates;
use survey::Survey;

impl Meta {
    /// Checks all metadata. If some of it cannot be read, only that is told. `each_slice_stored`
    /// says that the engine keeps a record of each slice, and not only of those shown several
    /// times.
    pub fn check(
        &self,
        each_slice_stored: bool,
        space: &SortSpace,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        twice(space, || self.check_once(each_slice_stored, space, interrupt, progress))
    }

    fn check_once(
        &self,
        each_slice_stored: bool,
        space: &SortSpace,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        let mut candidates = Candidates::new(space);
        let survey = Survey::take(self, space, &mut candidates, interrupt, progress)?;
        let Survey { inodes, slices } = survey;
        let facts = inodes.sorted()?;
        let found = inodes::compare(&facts, self, space, &mut candidates, interrupt)?;
        drop(facts);
        let inodes::Found { totals, dirs, cycles } = found;
        cycles.compare(space, &mut candidates)?;
        let (slices, last_slice) =
            slices::compare(slices, each_slice_stored, self, &mut candidates, interrupt)?;
        totals::compare(&totals, last_slice, self, &mut candidates, interrupt)?;
        dirs.compare(self, &mut candidates, interrupt)?;
        Ok(Report { findings: candidates.findings(space)?, slices, inodes: totals.inodes })
    }

    /// Checks a directory, and with `recursive` all below it: links, parents and what each
    /// directory holds.
    pub fn check_tree(
        &self,
        dir: Ino,
        recursive: bool,
        space: &SortSpace,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        twice(space, || subtree::check(self, dir, recursive, space, interrupt, progress))
    }
}

/// What two surveys have found.
fn twice(space: &SortSpace, survey: impl Fn() -> FsResult<Report>) -> FsResult<Report> {
    let first = survey()?;
    if first.findings.is_empty() {
        return Ok(first);
    }
    let suspected = first.findings;
    drop(first.slices);
    let mut report = survey()?;
    report.findings = report.findings.common(&suspected, space)?;
    Ok(report)
}
