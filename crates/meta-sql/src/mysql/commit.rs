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

mod checks;
mod flight;
mod fused;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Step, Write},
    schema::{Counter, DirStat, Key, QuotaKey, Row, encode_slices},
};
use sluice_types::{FileType, Ino, Time};

use super::{options::Options, pool::Lease, tables::Tables, watch};
use crate::{
    codec::Record,
    values::{key_values, row_values},
};
use flight::Flight;
pub(super) use flight::{Packet, Style};
use fused::Changes;
pub(super) use writes::overflowing;

/// What is to become of one record, and what must hold of it before.
#[derive(Default)]
struct Held<'c> {
    /// It is as it was.
    expect: Option<(&'c Row, Hold)>,
    /// The commit changes it, or what it stands for.
    written: bool,
}

type HeldRows<'c> = BTreeMap<Key, Held<'c>>;

/// The writes of a commit, sorted by what they do.
#[derive(Default)]
struct Sorted<'c> {
    /// By record; nodes under [`Record::Node`] if they are no directories.
    held: BTreeMap<Record, HeldRows<'c>>,
    /// Nodes that are directories, but for those in `listed`.
    dirs: HeldRows<'c>,
    /// Nodes whose lists of locks are compared: each must be locked before that, be it a directory.
    listed: FxHashSet<Ino>,
    absent: BTreeMap<Record, Vec<Key>>,
    inserts: BTreeMap<Record, BTreeMap<Key, &'c Row>>,
    puts: BTreeMap<Record, BTreeMap<Key, &'c Row>>,
    dir_puts: BTreeMap<Key, &'c Row>,
    deletes: BTreeMap<Record, Vec<&'c Key>>,
    dir_deletes: Vec<&'c Key>,
    clears: Vec<List>,
    bumps: BTreeMap<Ino, (i32, Option<Time>)>,
    counts: BTreeMap<&'static str, i64>,
    refers: BTreeMap<(u64, u32), i64>,
    uses: BTreeMap<Ino, DirStat>,
    charges: BTreeMap<QuotaKey, (i64, i64)>,
    appends: BTreeMap<(Ino, u32), Vec<u8>>,
}

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

struct Builder<'b> {
    tables: &'b Tables,
    flight: Flight,
}

impl<'c> Sorted<'c> {
    fn held_of(&mut self, key: &Key, kind: Option<FileType>) -> Option<&mut Held<'c>> {
        let rows = match key {
            Key::Node(ino) if self.listed.contains(ino) => self.held.entry(Record::Node).or_default(),
            Key::Node(ino) if kind == Some(FileType::Dir) || ino.is_trash() => &mut self.dirs,
            Key::Node(_) if self.dirs.contains_key(key) => &mut self.dirs,
            Key::Parents(..) | Key::Counter(Counter::AclMaxId) => {
                self.held.entry(Record::Parents).or_default()
            }
            _ => self.held.entry(key_values(key)?.0).or_default(),
        };
        Some(rows.entry(key.clone()).or_default())
    }

    /// Notes that a record is changed, if anything must hold of it.
    fn written(&mut self, key: &Key) {
        let rows = match key_values(key) {
            Some((Record::Node, _)) if self.dirs.contains_key(key) => Some(&mut self.dirs),
            Some((record, _)) => self.held.get_mut(&record),
            None => None,
        };
        if let Some(held) = rows.and_then(|rows| rows.get_mut(key)) {
            held.written = true;
        }
    }

    /// Notes that a record must be there.
    fn exists(&mut self, key: &Key) {
        if !self.is_new(key)
            && let Some(held) = self.held_of(key, None)
        {
            held.written = true;
        }
    }

    fn is_new(&self, key: &Key) -> bool {
        let inserts = key_values(key).and_then(|(record, _)| self.inserts.get(&record));
        inserts.is_some_and(|inserts| inserts.contains_key(key))
    }

    fn write(&mut self, write: &'c Write) {
        match write {
            Write::Put(row) => {
                let key = row.key();
                if self.is_new(&key) {
                    return;
                }
                self.written(&key);
                let is_dir = self.dirs.contains_key(&key)
                    || matches!(row, Row::Node(ino, attr)
                        if attr.kind == FileType::Dir && !self.listed.contains(ino));
                if is_dir {
                    self.dir_puts.insert(key, row);
                } else if let Some((record, _)) = key_values(&key) {
                    self.puts.entry(record).or_default().insert(key, row);
                }
            }
            Write::Delete(key) | Write::Discard(key) => {
                let Some((record, _)) = key_values(key) else { return };
                if matches!(write, Write::Delete(_)) {
                    self.exists(key);
                }
                self.written(key);
                if self.dirs.contains_key(key) {
                    self.dir_deletes.push(key);
                } else {
                    self.deletes.entry(record).or_default().push(key);
                }
            }
            Write::Clear(list) => self.clears.push(*list),
            Write::Bump { ino, nlink, time } => {
                self.exists(&Key::Node(*ino));
                let bump = self.bumps.entry(*ino).or_default();
                *bump = (bump.0.saturating_add(*nlink), bump.1.max(*time));
            }
            // Inserts were sorted before; the others are counted from what is there.
            Write::Insert(_) | Write::Count(Counter::AclMaxId, _) | Write::Link(..) => {}
            Write::Count(counter, by) => {
                self.written(&Key::Counter(*counter));
                *self.counts.entry(counter.name()).or_default() += by;
            }
            Write::Refer(slice, size, by) => {
                self.written(&Key::SliceRef(*slice, *size));
                *self.refers.entry((*slice, *size)).or_default() += by;
            }
            Write::Use(ino, by) => {
                self.written(&Key::DirStat(*ino));
                let stat = self.uses.entry(*ino).or_default();
                *stat = stat.plus(*by);
            }
            Write::Charge(key, space, inodes) => {
                self.written(&Key::Quota(*key));
                let charge = self.charges.entry(*key).or_default();
                *charge = (charge.0.wrapping_add(*space), charge.1.wrapping_add(*inodes));
            }
            Write::Append(_, _, slices) if slices.is_empty() => {}
            Write::Append(ino, index, slices) => {
                self.written(&Key::Chunk(*ino, *index));
                self.appends.entry((*ino, *index)).or_default().extend(encode_slices(slices));
            }
            Write::Tell(_) => *self.counts.entry(watch::TOLD).or_default() += 1,
        }
    }
}

/// The node whose list of locks an expectation speaks of.
fn listed(expect: &Expect) -> Option<Ino> {
    match expect {
        Expect::Same(List::Flocks(ino) | List::Plocks(ino), _) => Some(*ino),
        _ => None,
    }
}

fn sort(commit: &Commit) -> Sorted<'_> {
    let mut sorted = Sorted::default();
    let absent = commit.expects.iter().filter_map(|expect| match expect {
        Expect::Absent(key) => Some(key),
        _ => None,
    });
    let absent: FxHashSet<&Key> = absent.collect();
    sorted.listed = commit.expects.iter().filter_map(listed).collect();
    let mut new: FxHashSet<Key> = FxHashSet::default();
    for write in &commit.writes {
        let (Write::Insert(row) | Write::Put(row)) = write else { continue };
        // What replaces a record that must not be there is new.
        let is_new = matches!(write, Write::Insert(_)) || absent.contains(&row.key());
        if is_new && let Some((record, _)) = row_values(row) {
            new.insert(row.key());
            sorted.inserts.entry(record).or_default().insert(row.key(), row);
        }
    }
    for expect in &commit.expects {
        match expect {
            Expect::Row(row, hold) if *hold > Hold::None => {
                let kind = if let Row::Node(_, attr) = row { Some(attr.kind) } else { None };
                if let Some(held) = sorted.held_of(&row.key(), kind)
                    && held.expect.is_none_or(|(_, known)| known < *hold)
                {
                    held.expect = Some((row, *hold));
                    // Others may rely on it although it is not written: what belongs to a node is
                    // held by its node.
                    held.written |= *hold == Hold::Lock;
                }
            }
            // An insert finds that out itself.
            Expect::Absent(key) if !new.contains(key) => {
                let record = key_values(key).map_or(Record::Parents, |(record, _)| record);
                sorted.absent.entry(record).or_default().push(key.clone());
            }
            _ => {}
        }
    }
    for write in &commit.writes {
        sorted.write(write);
    }
    sorted
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
        let cleared = sorted.clears.iter().filter_map(|list| writes::cleared(*list));
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
        let clears =
            sorted.clears.iter().any(|list| writes::cleared(*list).is_some_and(|(of, ..)| of == record));
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
