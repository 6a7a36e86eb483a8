//! Which records made a commit fail.
//!
//! The server says only that something did not hold. What must stay true: this is asked after the
//! transaction is undone, so it is a hint: the records named are those to be looked at again.

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, Read, Write, still_holds},
    schema::{Key, Row},
};
use sluice_types::Ino;

use super::{commit::overflowing, error::Refusal, options::Options, pool::Lease, read::Plan, tables::Tables};

/// What a question is about.
enum Doubt<'c> {
    Expect(&'c Expect),
    /// A record that must be there.
    Exists(Key),
    /// A record that must not be there.
    New(Key),
    /// The number of the last commit.
    Step(u64),
}

/// Undoes the transaction and finds out what did not hold.
pub(super) fn diagnose(
    options: &Options,
    tables: &Tables,
    lease: &mut Lease<'_>,
    commit: &Commit,
    refusal: Refusal,
) -> EngineError {
    let (reads, doubts) = doubts(commit, refusal);
    let plan = Plan::new(tables, &reads);
    let text = plan.text();
    let separator = if text.is_empty() { "" } else { ";" };
    let Ok(mut answers) = lease.exchange(format!("ROLLBACK{separator}{text}")) else {
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
    let mut broken: Vec<Key> =
        doubts.iter().zip(&found).filter_map(|(doubt, found)| is_broken(doubt, found, commit)).collect();
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

fn doubts(commit: &Commit, refusal: Refusal) -> (Vec<Read>, Vec<Doubt<'_>>) {
    let mut reads = Vec::new();
    let mut doubts = Vec::new();
    let mut doubt = |read, doubt| {
        reads.push(read);
        doubts.push(doubt);
    };
    let get = |key: &Key| Read::Get(key.clone());
    if refusal == Refusal::NoAppend {
        // Reading what is damaged says so, and what is too long shows.
        for write in &commit.writes {
            if let Write::Append(ino, index, _) = write {
                let key = Key::Chunk(*ino, *index);
                doubt(get(&key), Doubt::Exists(key));
            }
        }
        return (reads, doubts);
    }
    if let Some(step) = commit.step {
        doubt(get(&Key::Writer(step.writer, step.lane)), Doubt::Step(step.from));
    }
    for expect in &commit.expects {
        let read = match expect {
            Expect::Row(_, Hold::None) => continue,
            Expect::Row(row, _) => get(&row.key()),
            Expect::Absent(key) => get(key),
            Expect::Vacant(dir) => Read::Names { dir: *dir, limit: leaving(commit, expect).len() + 1 },
            Expect::Same(list, _) => Read::All(*list),
        };
        doubt(read, Doubt::Expect(expect));
    }
    for write in &commit.writes {
        match write {
            Write::Insert(row) => doubt(get(&row.key()), Doubt::New(row.key())),
            Write::Delete(key) => doubt(get(key), Doubt::Exists(key.clone())),
            Write::Bump { ino, .. } => {
                let key = Key::Node(*ino);
                let is_new = |write: &Write| matches!(write, Write::Insert(Row::Node(new, _)) if new == ino);
                if !commit.writes.iter().any(is_new) {
                    doubt(get(&key), Doubt::Exists(key));
                }
            }
            _ => {}
        }
    }
    (reads, doubts)
}

/// Names in a directory that the commit removes.
fn leaving<'c>(commit: &'c Commit, expect: &Expect) -> FxHashSet<&'c [u8]> {
    let Expect::Vacant(dir) = expect else { return FxHashSet::default() };
    let names = commit.writes.iter().filter_map(|write| match write {
        Write::Delete(Key::Entry(of, name)) if of == dir => Some(&name[..]),
        _ => None,
    });
    names.collect()
}

/// The key to name, if what was expected does not hold.
fn is_broken(doubt: &Doubt<'_>, found: &Found, commit: &Commit) -> Option<Key> {
    let row = match found {
        Found::Row(row) => row.as_ref(),
        _ => None,
    };
    let (holds, key) = match doubt {
        Doubt::Expect(expect) => {
            let holds = match (expect, found) {
                (Expect::Row(then, hold), _) => row.is_some_and(|now| still_holds(*hold, then, now)),
                (Expect::Absent(_), _) => row.is_none(),
                (Expect::Vacant(_), Found::Names(names)) => {
                    let leaving = leaving(commit, expect);
                    names.iter().all(|name| leaving.contains(&name[..]))
                }
                (Expect::Same(_, then), Found::Rows(now)) => {
                    now.len() == then.len() && now.iter().all(|row| then.contains(row))
                }
                _ => true,
            };
            (holds, expect.key())
        }
        Doubt::Exists(key) => (row.is_some() || matches!(key, Key::Parents(..)), key.clone()),
        Doubt::New(key) => (row.is_none(), key.clone()),
        Doubt::Step(from) => {
            let key = commit.step.map(|step| Key::Writer(step.writer, step.lane))?;
            (matches!(row, Some(Row::Writer(_, _, n)) if n == from), key)
        }
    };
    (!holds).then_some(key)
}
