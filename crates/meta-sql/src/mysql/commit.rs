//! A commit turned into one flight: BEGIN, checks, writes, COMMIT.
//!
//! Nothing was held while reading, so all that must hold is compared here, under locks that last
//! until COMMIT. What must stay true:
//! * A check that fails is an error, and the server runs no statement behind an error: COMMIT is
//!   never reached.
//! * All clients lock in one order: nodes that are no directories, what belongs to them, entries,
//!   directories, usage, counters; within each by key. So none waits for one that waits for it, and
//!   what everybody shares is locked last and shortest. A directory whose locks are compared stands
//!   among the files: locks on directories are rare enough for the server to break the circles that
//!   this makes possible.
//! * A record that is both compared and written is locked for writing at once, never first for
//!   reading.

mod builder;
mod checks;
mod flight;
mod fused;
mod sorted;
mod writes;

use std::collections::BTreeSet;

use sluice_meta::{
    engine::{Commit, EngineError, Expect, List, Step},
    schema::Key,
};
use sluice_types::Ino;

pub(super) use super::style::Style;
use super::{options::Options, pool::Lease, tables::Tables};
use crate::{codec::Record, plan::cleared};
use builder::Builder;
use flight::Flight;
pub(super) use flight::Packet;
use fused::Changes;
use sorted::{Sorted, sort};
pub(super) use writes::overflowing;

/// Records whose rows are usage, which all changes below a directory share.
const USAGE: [Record; 3] = [Record::DirStat, Record::DirQuota, Record::Quota];

/// The packets of a commit, as the connection takes them.
///
/// # Errors
/// If it cannot be said in statements, a value is larger than the server takes, or more is to be
/// appended to a chunk than any holds.
pub(super) fn packets(
    options: &Options,
    tables: &Tables,
    commit: &Commit,
    lease: &Lease<'_>,
) -> Result<Vec<Packet>, EngineError> {
    let full = overflowing(commit, |_, _| 0);
    if !full.is_empty() {
        return Err(EngineError::Full(full));
    }
    let mut builder = Builder { tables, flight: Flight::new(lease.style()) };
    let sorted = sort(commit);
    if let Some(step) = commit.step {
        builder.step(step);
    }
    builder.all(&sorted, commit).map_err(|reason| options.refused(reason))?;
    builder.flight.packets(lease.max_packet()).ok_or_else(|| {
        options.refused("a value is larger than its max_allowed_packet; raise that on the server")
    })
}

impl Builder<'_> {
    /// Takes the writer record from one number to the next.
    fn step(&mut self, step: Step) {
        let table = &self.tables.of(Record::Writer).table;
        self.flight.number(format!(
            "UPDATE {table} SET n={} WHERE writer={} AND lane={} AND n={}",
            step.to as i64, step.writer as i64, step.lane, step.from as i64
        ));
    }

    /// Everything, in the order in which all clients lock.
    fn all(&mut self, sorted: &Sorted<'_>, commit: &Commit) -> Result<(), String> {
        let refused = |list: &&List| matches!(list, List::Sustained(_) | List::LocksOf(_));
        if let Some(list) = sorted.clears.iter().find(refused) {
            return Err(format!("{list:?} cannot be cleared"));
        }
        self.insert(Record::Node, sorted);
        let is_dir = |ino: &Ino| sorted.dirs.contains_key(&Key::Node(*ino));
        let (dirs, others): (Vec<_>, Vec<_>) = sorted.bumps.iter().partition(|(ino, _)| is_dir(ino));
        let puts = sorted.puts.get(&Record::Node);
        let deletes = sorted.deletes.get(&Record::Node);
        let changes = Changes { puts, deletes, bumps: &others };
        self.change(Record::Node, sorted.held.get(&Record::Node), changes);
        self.absent(Record::Node, sorted);
        for expect in &commit.expects {
            if let Expect::Same(list, rows) = expect {
                self.same(*list, rows)?;
            }
        }
        let late = |record: &Record| {
            USAGE.contains(record) || matches!(record, Record::Node | Record::Entry | Record::Counter)
        };
        let cleared = sorted.clears.iter().filter_map(|list| cleared(*list));
        let cleared: BTreeSet<Record> = cleared.map(|(record, ..)| record).collect();
        let records: BTreeSet<Record> = sorted
            .held
            .keys()
            .chain(sorted.absent.keys())
            .chain(sorted.inserts.keys())
            .chain(sorted.puts.keys())
            .chain(sorted.deletes.keys())
            .chain(&cleared)
            .copied()
            .collect();
        for record in records.into_iter().filter(|record| !late(record)) {
            self.whole(record, sorted);
        }
        self.append(&sorted.appends);
        self.refer(&sorted.refers);
        self.whole(Record::Entry, sorted);
        let (puts, deletes) = (Some(&sorted.dir_puts), Some(&sorted.dir_deletes));
        self.change(Record::Node, Some(&sorted.dirs), Changes { puts, deletes, bumps: &dirs });
        for expect in &commit.expects {
            if let Expect::Vacant(dir) = expect {
                let edge = &self.tables.edge;
                self.flight.check(&format!("EXISTS(SELECT 1 FROM {edge} WHERE parent={})", dir.0 as i64));
            }
        }
        for record in USAGE {
            self.whole(record, sorted);
        }
        self.add_usage(&sorted.uses, &sorted.charges);
        self.whole(Record::Counter, sorted);
        self.count(&sorted.counts);
        Ok(())
    }

    fn whole(&mut self, record: Record, sorted: &Sorted<'_>) {
        // What is cleared may be among what is compared, and may be made again.
        let clears = sorted.clears.iter().any(|list| cleared(*list).is_some_and(|(of, ..)| of == record));
        if clears {
            self.hold(record, sorted.held.get(&record));
            self.clear(record, &sorted.clears);
            self.insert(record, sorted);
            self.put(record, sorted.puts.get(&record));
            self.delete(record, sorted.deletes.get(&record));
        } else {
            self.insert(record, sorted);
            let (puts, deletes) = (sorted.puts.get(&record), sorted.deletes.get(&record));
            self.change(record, sorted.held.get(&record), Changes { puts, deletes, bumps: &[] });
        }
        self.absent(record, sorted);
    }
}
