//! Compares how often slices are used with the stored references.

use sluice_types::FsResult;

use super::{
    finding::{Counted, Finding},
    report::{Candidates, Slices},
};
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    schema::Row,
    sort::{Fields, Sorter},
};

/// Compares the uses of slices that a survey found; all that are used, and the highest id.
pub(super) fn compare(
    mut uses: Sorter,
    each_slice_stored: bool,
    meta: &Meta,
    candidates: &mut Candidates,
    interrupt: &Interrupt,
) -> FsResult<(Slices, u64)> {
    meta.each_readable_page(Scan::SliceRefs, interrupt, |page| {
        for damage in page.damaged {
            candidates.add(&Finding::unreadable(damage))?;
        }
        for row in page.rows {
            let Row::SliceRef(id, size, stored) = row else { continue };
            let record = [&id.to_be_bytes()[..], &size.to_be_bytes(), &[1], &stored.to_be_bytes()];
            uses.add(&record.concat())?;
        }
        Ok(())
    })?;
    let (mut count, mut last) = (0, 0);
    let mut end = |of: &Seen| {
        if of.counted > 0 {
            count += 1;
            last = of.id;
        }
        // Without a record it counts as one.
        let none = if each_slice_stored { -1 } else { 1 };
        let references = Counted { stored: of.stored.unwrap_or(none), counted: of.counted };
        // Without users it waits to be deleted, whatever the number.
        let waits = of.counted == 0 && of.stored.is_none_or(|stored| stored <= 0);
        if references.stored == references.counted || waits {
            return Ok(());
        }
        candidates.add(&Finding::References { id: of.id, size: of.size, references })
    };
    let sorted = uses.sorted()?;
    let mut records = sorted.records()?;
    let mut of = Seen::default();
    while let Some((record, times)) = records.next()? {
        let mut fields = Fields(record);
        let (id, size) = (fields.u64(), fields.u32());
        if (id, size) != (of.id, of.size) {
            end(&of)?;
            of = Seen { id, size, ..Seen::default() };
        }
        match fields.u8() {
            0 => of.counted = times as i64,
            _ => of.stored = Some(fields.u64() as i64),
        }
    }
    end(&of)?;
    drop(records);
    Ok((Slices { sorted: Some(sorted), count }, last))
}

/// What was seen of one slice.
#[derive(Default)]
struct Seen {
    id: u64,
    size: u32,
    counted: i64,
    stored: Option<i64>,
}
