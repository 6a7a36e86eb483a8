//! Compares the counters of a volume with what was counted.

use sluice_types::FsResult;

use super::{
    finding::{Counted, Finding},
    inodes::Totals,
    report::Candidates,
};
use crate::{
    batch::Interrupt,
    engine::{Found, Read},
    meta::Meta,
    schema::{Counter, Key, Row},
};

/// Compares the counters. `last_slice` is the highest id of a slice.
pub(super) fn compare(
    totals: &Totals,
    last_slice: u64,
    meta: &Meta,
    candidates: &mut Candidates,
    interrupt: &Interrupt,
) -> FsResult<()> {
    let counters = [Counter::UsedSpace, Counter::TotalInodes, Counter::NextInode, Counter::NextChunk];
    let reads = counters.map(|counter| Read::Get(Key::Counter(counter)));
    let found = meta.retry(interrupt, || meta.engine.read(&reads))?;
    let counted = [totals.space, totals.accounted, totals.last as i64 + 1, last_slice as i64 + 1];
    for ((counter, counted), found) in counters.into_iter().zip(counted).zip(found) {
        let stored = if let Found::Row(Some(Row::Counter(_, stored))) = found { stored } else { 0 };
        let both = Counted { stored, counted };
        match counter {
            Counter::UsedSpace | Counter::TotalInodes if stored != counted => {
                candidates.add(&Finding::Total { counter, total: both })?;
            }
            Counter::NextInode | Counter::NextChunk if stored < counted => {
                candidates.add(&Finding::NextNumber { counter, next: both })?;
            }
            _ => {}
        }
    }
    Ok(())
}
