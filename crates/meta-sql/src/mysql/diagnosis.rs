//! Which records made a commit fail.
//!
//! The server reports only that some check failed. What must stay true: this code runs after the
//! rollback. So its result is only a hint which records to read again.

use sluice_meta::{
    engine::{Commit, Condition, EngineError, Found, Read, Wanted, Write},
    schema::{Key, Row},
};
use sluice_types::Ino;

use super::{
    commit::overflowing, connection::Connection, error::Refusal, options::Options, read::Plan, tables::Tables,
};

/// Rolls the transaction back, and finds out which expectation did not hold.
pub(super) fn diagnose(
    options: &Options,
    tables: &Tables,
    connection: &mut Connection,
    commit: &Commit,
    refusal: Refusal,
) -> EngineError {
    let is_full = refusal == Refusal::NoAppend;
    let conditions = if is_full { Vec::new() } else { conditions(commit) };
    let reads = conditions.iter().map(|condition| condition.read.clone());
    let reads: Vec<Read> = reads.chain(if is_full { appended(commit) } else { Vec::new() }).collect();
    let plan = Plan::new(tables, &reads);
    let text = plan.text();
    let separator = if text.is_empty() { "" } else { ";" };
    let Ok(mut answers) = connection.exchange(&format!("ROLLBACK{separator}{text}")) else {
        return EngineError::Conflict(Vec::new());
    };
    answers.remove(0);
    if text.is_empty() {
        answers.clear();
    }
    let found = match plan.answered(options, answers) {
        Ok(found) => found,
        Err(damage @ EngineError::Corrupt { .. }) => return damage,
        Err(_) => return EngineError::Conflict(Vec::new()),
    };
    if is_full {
        let full = overflowing(commit, |ino, index| slices_in(&found, ino, index));
        if !full.is_empty() {
            return EngineError::Full(full);
        }
    }
    let broken = conditions.into_iter().zip(&found).filter(|(condition, found)| !condition.holds(found));
    let mut broken: Vec<Key> = broken.map(|(condition, _)| condition.key).collect();
    if broken.is_empty() && refusal == Refusal::Check {
        // The unique key of some tables is narrower than ours: then any of them may have made it
        // fail.
        broken = commit.writes.iter().filter_map(narrow).collect();
    }
    broken.sort_unstable();
    broken.dedup();
    EngineError::Conflict(broken)
}

/// How many slices a chunk that was read has.
fn slices_in(found: &[Found], ino: Ino, index: u32) -> usize {
    let of = found.iter().find_map(|found| match found {
        Found::Row(Some(Row::Chunk(of, at, slices))) if (*of, *at) == (ino, index) => Some(slices.len()),
        _ => None,
    });
    of.unwrap_or_default()
}

/// The key of a new record whose table has a narrower one: without all columns, or one for which
/// names of attributes are alike that differ by case, or by spaces at the end.
fn narrow(write: &Write) -> Option<Key> {
    let Write::Insert(row) = write else { return None };
    let is_narrow = matches!(row, Row::SliceRef(..) | Row::DelFile(..) | Row::DelSlices(..) | Row::Xattr(..));
    is_narrow.then(|| row.key())
}

/// The chunks that are appended to: a read of a damaged one fails, and the length of one that is
/// too long is visible.
fn appended(commit: &Commit) -> Vec<Read> {
    let appended = commit.writes.iter().filter_map(|write| match write {
        Write::Append(ino, index, _) => Some(Read::Get(Key::Chunk(*ino, *index))),
        _ => None,
    });
    appended.collect()
}

/// The conditions that the server checked. What is counted from others need not be there to be
/// removed.
fn conditions(commit: &Commit) -> Vec<Condition<'_>> {
    let is_counted =
        |of: &Condition<'_>| matches!((&of.key, &of.wanted), (Key::Parents(..), Wanted::Present));
    commit.conditions().filter(|condition| !is_counted(condition)).collect()
}
