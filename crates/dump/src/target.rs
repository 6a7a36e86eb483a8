//! The database into which a dump is loaded. It must be empty, and holds a volume only at the end.
//!
//! What must stay true: the settings are written last. So a database that holds only a part of a
//! dump holds no volume. A marker record distinguishes such a part from other data. The next load
//! removes the part.

use sluice_meta::{
    engine::{Engine, Found, List, Read, Scan, Write},
    schema::{Key, Row, VolumeFormat},
};
use sluice_types::Ino;

use crate::{DumpError, retry::retry, store::commit};

/// The marker: a load is under way. No client's session has the number 0.
const UNDER_WAY: Row = Row::Writer(0, 0, 1);
/// Records read or removed at once.
const PAGE: usize = 1000;

/// Makes tables, and checks that they are empty.
pub(crate) fn prepare(engine: &dyn Engine) -> Result<(), DumpError> {
    engine.prepare()?;
    let [setting, cut_off] = [Key::Setting, UNDER_WAY.key()].map(Read::Get);
    if engine.read(&[setting])? != [Found::Row(None)] {
        return Err(DumpError::NotEmpty);
    }
    if engine.read(&[cut_off])? == [Found::Row(None)] {
        engine.check_vacant()?;
        let mut from = None;
        loop {
            let nodes = engine.scan(Scan::Nodes, from.as_ref(), PAGE)?;
            if !nodes.rows.is_empty() || !nodes.damaged.is_empty() {
                return Err(DumpError::NotEmpty);
            }
            // A page may be empty although others follow.
            from = nodes.next;
            if from.is_none() {
                break;
            }
        }
        commit(engine, vec![Write::Put(UNDER_WAY)])?;
    } else {
        tracing::warn!("a load into this database was cut off; what it left is removed first");
        clear(engine)?;
    }
    Ok(())
}

/// The volume exists from now on.
///
/// # Errors
/// If it has no root directory, as nobody could mount it.
pub(crate) fn finish(engine: &dyn Engine, format: &VolumeFormat) -> Result<(), DumpError> {
    match retry(|| engine.read(&[Read::Get(Key::Node(Ino::ROOT))]))?.into_iter().next() {
        Some(Found::Row(Some(Row::Node(_, attr)))) if attr.is_dir() => {}
        _ => return Err(DumpError::NoRoot),
    }
    commit(engine, vec![Write::Put(Row::setting(format)), Write::Discard(UNDER_WAY.key())])?;
    retry(|| engine.sync())?;
    Ok(())
}

/// Removes what a load left, except the marker. Records that belong to a node go with it.
fn clear(engine: &dyn Engine) -> Result<(), DumpError> {
    for scan in Scan::ALL.into_iter().filter(|scan| *scan != Scan::Writers) {
        let mut from = None;
        loop {
            let page = retry(|| engine.scan(scan, from.as_ref(), PAGE))?.sound()?;
            for rows in page.rows.chunks(PAGE) {
                let of_several = |row: &Row| match row {
                    // It has several names, which no scan finds.
                    Row::Node(ino, attr) if attr.parent == Ino::NONE => {
                        Some(Write::Clear(List::Parents(*ino)))
                    }
                    _ => None,
                };
                let discarded = rows.iter().map(|row| Write::Discard(row.key()));
                commit(engine, rows.iter().filter_map(of_several).chain(discarded).collect())?;
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    Ok(())
}
