//! Which records made a commit fail.
//!
//! The server reports only that some check failed. What must stay true: this runs after the
//! rollback, so it is only a hint: the records to read again.

use std::convert::Infallible;

use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_types::Ino;

use super::{
    commit::overflowing, connection::Connection, error::Refusal, options::Options, read::Plan, tables::Tables,
};
use crate::expected::holds;

/// A record that may be the reason.
struct Doubt<'c> {
    /// The record to name if it does not.
    key: Key,
    /// How to read it.
    read: Read,
    /// Whether the result is what the commit expects.
    holds: Box<dyn Fn(&Found) -> bool + 'c>,
}

/// Rolls the transaction back, and finds out which expectation did not hold.
pub(super) fn diagnose(
    options: &Options,
    tables: &Tables,
    connection: &mut Connection,
    commit: &Commit,
    refusal: Refusal,
) -> EngineError {
    let doubts = doubts(commit, refusal);
    let reads: Vec<Read> = doubts.iter().map(|doubt| doubt.read.clone()).collect();
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
    if refusal == Refusal::NoAppend {
        let full = overflowing(commit, |ino, index| slices_in(&found, ino, index));
        if !full.is_empty() {
            return EngineError::Full(full);
        }
    }
    let broken = doubts.into_iter().zip(&found).filter(|(doubt, found)| !(doubt.holds)(found));
    let mut broken: Vec<Key> = broken.map(|(doubt, _)| doubt.key).collect();
    if broken.is_empty() && refusal == Refusal::Duplicate {
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

fn doubts(commit: &Commit, refusal: Refusal) -> Vec<Doubt<'_>> {
    if refusal == Refusal::NoAppend {
        // A read of a damaged record fails, and the length of one that is too long is visible.
        let appended = commit.writes.iter().filter_map(|write| match write {
            Write::Append(ino, index, _) => Some(of_record(Key::Chunk(*ino, *index), |_| true)),
            _ => None,
        });
        return appended.collect();
    }
    let step = commit.step.map(|step| {
        let is_from = move |row: Option<&Row>| matches!(row, Some(Row::Writer(_, _, n)) if *n == step.from);
        of_record(Key::Writer(step.writer, step.lane), is_from)
    });
    let expects = commit.expects.iter().filter_map(|expect| of_expect(commit, expect));
    let writes = commit.writes.iter().filter_map(|write| match write {
        Write::Insert(row) => Some(of_record(row.key(), |row| row.is_none())),
        Write::Delete(Key::Parents(..)) => None,
        Write::Delete(key) => Some(of_record(key.clone(), |row| row.is_some())),
        Write::Bump { ino, .. } => Some(of_record(Key::Node(*ino), |row| row.is_some())),
        _ => None,
    });
    step.into_iter().chain(expects).chain(writes).collect()
}

fn of_record<'c>(key: Key, holds: impl Fn(Option<&Row>) -> bool + 'c) -> Doubt<'c> {
    let holds = move |found: &Found| holds(if let Found::Row(row) = found { row.as_ref() } else { None });
    Doubt { read: Read::Get(key.clone()), key, holds: Box::new(holds) }
}

fn of_expect<'c>(commit: &'c Commit, expect: &'c Expect) -> Option<Doubt<'c>> {
    // The error of `holds` with a failing `ask` is the read that it needs.
    let read = holds::<Found, Read>(commit, expect, Err).err()?;
    let holds = move |found: &Found| holds::<&Found, Infallible>(commit, expect, |_| Ok(found)) == Ok(true);
    Some(Doubt { key: expect.key(), read, holds: Box::new(holds) })
}
