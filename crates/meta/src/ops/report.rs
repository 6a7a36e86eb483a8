//! Reports: what the last runs of programs such as `fsck` found.

use bytes::Bytes;
use smallvec::smallvec;

use super::group::store;
use crate::{
    engine::Hold,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Extra, Key, Row},
    view::{Stop, View},
};

/// Keeps a report in place of the last one of that number. Two trips.
#[derive(Clone, Debug)]
pub struct PutReport {
    /// Its number.
    pub number: u64,
    /// What it says.
    pub report: Bytes,
}

impl Op for PutReport {
    type Out = ();
    const NAME: &'static str = "put_report";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("report")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        store(view, Extra::Report, self.number, self.report.to_vec())
    }
}

/// Reads the last report of a number. One trip.
#[derive(Clone, Copy, Debug)]
pub struct ReadReport(pub u64);

impl Op for ReadReport {
    type Out = Option<Bytes>;
    const NAME: &'static str = "read_report";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Option<Bytes>, Stop> {
        Ok(match view.get(&Key::Extra(Extra::Report, self.0), Hold::None)? {
            Some(Row::Extra(_, _, report)) => Some(report.0),
            _ => None,
        })
    }
}
