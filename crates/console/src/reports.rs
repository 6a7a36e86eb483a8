//! What the last runs of `sluice fsck` and `sluice gc` found, as these commands store it.

use serde::Serialize;
use serde_json::Value;
use sluice_meta::{FSCK_REPORT, GC_REPORT, Interrupt, Meta};
use sluice_types::FsResult;

/// The last findings, each `None` if none is on record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reports {
    pub(crate) fsck: Option<Value>,
    pub(crate) gc: Option<Value>,
}

/// Reads both. Two trips.
pub(crate) fn read(meta: &Meta, interrupt: &Interrupt) -> FsResult<Reports> {
    let read = |number| {
        let report = meta.report(number, interrupt)?;
        // What is no JSON was not stored by these commands.
        FsResult::Ok(report.and_then(|report| serde_json::from_slice(&report).ok()))
    };
    Ok(Reports { fsck: read(FSCK_REPORT)?, gc: read(GC_REPORT)? })
}
