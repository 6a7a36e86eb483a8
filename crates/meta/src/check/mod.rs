//! Checks whether the nodes, entries, chunks and counts of a volume agree, and repairs them.
//!
//! What must stay true: a change that is under way is never reported as a fault. A finding counts
//! only if two surveys, one after the other, both have it. A repair changes only records that still
//! are as they were found.
//!
//! Memory: about 60 bytes an inode, 40 a directory and 30 a slice.

mod compare;
mod finding;
mod place;
mod repair;
mod report;
mod subtree;
mod survey;

pub use finding::{Counted, Finding, Weight};
pub use repair::Repair;
pub use report::Report;

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{FsResult, Ino};

use crate::{batch::Interrupt, engine::Scan, meta::Meta, schema::Row, tree::Progress};
use survey::Survey;

impl Meta {
    /// Checks all metadata. If some of it cannot be read, only that is told. `each_slice_stored`
    /// says that the engine keeps a record of each slice, and not only of those shown several
    /// times.
    pub fn check(
        &self,
        each_slice_stored: bool,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        let mut report = self.check_once(each_slice_stored, interrupt, progress)?;
        if !report.findings.is_empty() {
            let suspected: FxHashSet<Finding> = report.findings.into_iter().collect();
            report = self.check_once(each_slice_stored, interrupt, progress)?;
            report.findings.retain(|finding| suspected.contains(finding));
        }
        Ok(report)
    }

    fn check_once(
        &self,
        each_slice_stored: bool,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        let survey = Survey::take(self, interrupt, progress)?;
        let mut findings = survey.compare(self, each_slice_stored, interrupt)?;
        let unreadable = |finding: &Finding| matches!(finding, Finding::Unreadable { .. });
        if findings.iter().any(unreadable) {
            // What those records hold was not counted: whatever else seems wrong, or unused, may be
            // right.
            findings.retain(unreadable);
        }
        let mut slices: Vec<(u64, u32)> = survey.slices.keys().copied().collect();
        slices.sort_unstable();
        Ok(Report { findings, slices, inodes: survey.nodes.len() as u64 })
    }

    /// Checks a directory, and with `recursive` all below it: links, parents and what each
    /// directory holds.
    pub fn check_tree(
        &self,
        dir: Ino,
        recursive: bool,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Report> {
        let first = subtree::check(self, dir, recursive, interrupt, progress)?;
        if first.findings.is_empty() {
            return Ok(first);
        }
        let suspected: FxHashSet<Finding> = first.findings.into_iter().collect();
        let mut report = subtree::check(self, dir, recursive, interrupt, progress)?;
        report.findings.retain(|finding| suspected.contains(finding));
        Ok(report)
    }

    /// Which files show these slices, deleted ones included. A slice that no chunk shows any more
    /// is not answered.
    pub fn files_of_slices(
        &self,
        slices: &FxHashSet<(u64, u32)>,
        interrupt: &Interrupt,
    ) -> FsResult<FxHashMap<(u64, u32), Vec<Ino>>> {
        let mut files: FxHashMap<(u64, u32), Vec<Ino>> = FxHashMap::default();
        self.each_readable_page(Scan::Chunks, interrupt, |page| {
            for row in page.rows {
                let Row::Chunk(ino, _, records) = row else { continue };
                for slice in records.iter().map(|record| (record.id, record.size)) {
                    if slices.contains(&slice) {
                        let known = files.entry(slice).or_default();
                        if !known.contains(&ino) {
                            known.push(ino);
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(files)
    }
}
