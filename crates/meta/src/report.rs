//! Reads and writes the reports of `fsck` and `gc` that a volume stores.

use bytes::Bytes;
use sluice_types::{FsError, FsResult};

use crate::{
    batch::Interrupt,
    meta::Meta,
    ops::report::{PutReport, ReadReport},
};

/// The number of the report of `fsck`.
pub const FSCK_REPORT: u64 = 1;
/// The number of the report of `gc`.
pub const GC_REPORT: u64 = 2;
/// Longest report in bytes: more does not fit into a column of MySQL.
pub const LONGEST_REPORT: usize = 65_535;

impl Meta {
    /// Keeps a report, which may be any bytes, in place of the last one of that number. Two trips.
    ///
    /// # Errors
    /// `EINVAL` if it is empty, `E2BIG` if it is longer than [`LONGEST_REPORT`], `EROFS` if the
    /// volume is open for reading only.
    pub fn put_report(&self, number: u64, report: Bytes, interrupt: &Interrupt) -> FsResult<()> {
        match report.len() {
            0 => Err(FsError::Invalid),
            1..=LONGEST_REPORT => self.run(PutReport { number, report }, interrupt),
            _ => Err(FsError::TooBig),
        }
    }

    /// The last report of a number, if there is one. One trip.
    ///
    /// # Errors
    /// `EIO` if the engine says nothing for too long.
    pub fn report(&self, number: u64, interrupt: &Interrupt) -> FsResult<Option<Bytes>> {
        self.read(&ReadReport(number), interrupt)
    }
}
