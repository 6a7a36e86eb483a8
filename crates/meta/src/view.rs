//! What an operation sees: the records it asked for, with the batch's earlier operations on top.
//!
//! An operation runs from its beginning each time. When it asks for a record that is not here yet,
//! it stops. The batch then reads all requested records of its operations in one round trip, and
//! runs the operations again. So an operation must be a pure function of its view. The number of
//! its round trips is the number of times that it stopped.

mod lines;
mod places;
mod stop;
#[cfg(test)]
mod tests;
mod writes;

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{Attr, Ino, Name, Time};

use crate::{
    change_log::Line,
    engine::{Commit, Expect, Found, Hold, List, Read, Step, Write, quota_allows, still_holds},
    env::Env,
    fact::Fact,
    known::Known,
    opens::PendingDeletes,
    outcome::Outcome,
    overlay::Overlay,
    schema::{Entry, Key, QuotaKey, Row},
    want::Want,
};

pub use self::stop::Stop;

/// What a batch has read and decided.
pub(crate) struct Batch<'e> {
    known: Known<'e>,
    /// What operations found out, those that failed too.
    pub(crate) learned: Vec<Fact>,
    pub(crate) now: Time,
    /// Whether an attempt before this one met a conflict.
    pub(crate) again: bool,
    rows: FxHashMap<Key, (Hold, Option<Row>)>,
    follows: FxHashMap<(Ino, Name), Hold>,
    lists: FxHashMap<List, (Hold, Vec<Row>)>,
    names: FxHashMap<Ino, (usize, Vec<Name>)>,
    overlay: Overlay,
    held: FxHashMap<Key, Hold>,
    empty_dirs: Vec<Ino>,
    same: FxHashSet<List>,
    /// Bytes and inodes that quotas must admit: the most that any operation asked for, what those
    /// before it charge included.
    rooms: FxHashMap<QuotaKey, (i64, i64)>,
    /// Records that changed between two trips although a finished operation relied on them.
    pub(crate) unrepeatable: Vec<Key>,
    /// Entries that were found without the nodes they name: damage, or both records went between
    /// two looks.
    dangling: Vec<Row>,
    /// What the change log says of it.
    lines: Vec<Line>,
    /// Files that it destroys. Taken out before the commit, to be dropped after it.
    pub(crate) pending_deletes: PendingDeletes<'e>,
}

impl<'e> Batch<'e> {
    pub(crate) fn new(env: &'e Env) -> Self {
        Self {
            known: Known::new(env),
            learned: Vec::new(),
            now: env.clock.now(),
            again: false,
            rows: FxHashMap::default(),
            follows: FxHashMap::default(),
            lists: FxHashMap::default(),
            names: FxHashMap::default(),
            overlay: Overlay::default(),
            held: FxHashMap::default(),
            empty_dirs: Vec::new(),
            same: FxHashSet::default(),
            rooms: FxHashMap::default(),
            unrepeatable: Vec::new(),
            dangling: Vec::new(),
            lines: Vec::new(),
            pending_deletes: PendingDeletes::new(&env.opens),
        }
    }

    /// Makes room for what so many records will bring, most of them held and changed: growing would
    /// move megabytes.
    pub(crate) fn expect_many(&mut self, records: usize) {
        self.held.reserve(records);
        self.overlay.reserve(records);
    }

    /// Takes in the answers of one trip.
    pub(crate) fn learn(&mut self, (reads, holds): (Vec<Read>, Vec<Hold>), found: Vec<Found>) {
        // Most questions are for an entry and its node.
        self.rows.reserve(2 * reads.len());
        for ((read, hold), found) in reads.into_iter().zip(holds).zip(found) {
            match (read, found) {
                (Read::Get(key), Found::Row(row)) => self.learn_row(key, hold, row),
                (Read::Follow(dir, name), Found::Rows(rows)) => {
                    let (mut entry, mut node) = (None, false);
                    for row in rows {
                        if let Row::Entry(..) = row {
                            entry = Some(row);
                        } else {
                            node = true;
                            self.learn_row(row.key(), hold, Some(row));
                        }
                    }
                    if let (Some(Row::Entry(_, _, to)), false) = (&entry, node) {
                        // That another read missed the node too proves nothing.
                        self.dangling.extend(entry.clone());
                        self.learn_row(Key::Node(to.ino), hold, None);
                    }
                    self.learn_row(Key::Entry(dir, name.clone()), hold, entry);
                    self.follows.insert((dir, name), hold);
                }
                (Read::Names { dir, limit }, Found::Names(names)) => {
                    drop(self.names.insert(dir, (limit, names)));
                }
                (Read::All(list), Found::Rows(rows)) => drop(self.lists.insert(list, (hold, rows))),
                (read, found) => {
                    tracing::error!(?read, ?found, "the engine's answer does not fit the question");
                }
            }
        }
    }

    /// What to read once more before anybody believes that an entry has no node. Numbers of nodes
    /// are never used again: an entry that is still there after its node was found missing is
    /// damaged.
    pub(crate) fn dangling(&self) -> Vec<Read> {
        self.dangling.iter().map(|row| Read::Get(row.key())).collect()
    }

    /// Takes in the answers to [`Self::dangling`]; the keys of those entries that are gone or name
    /// something else by now.
    pub(crate) fn recheck_dangling(&mut self, found: &[Found]) -> Vec<Key> {
        let dangling = std::mem::take(&mut self.dangling);
        let changed = |(row, found): &(Row, &Found)| !matches!(found, Found::Row(Some(now)) if now == row);
        dangling.into_iter().zip(found).filter(changed).map(|(row, _)| row.key()).collect()
    }

    fn learn_row(&mut self, key: Key, hold: Hold, row: Option<Row>) {
        if let Key::Quota(quota) = &key
            && let Some((space, inodes)) = self.rooms.get(quota)
            && !quota_allows(row.as_ref(), *space, *inodes)
        {
            self.unrepeatable.push(key.clone());
        }
        let Some((known, before)) = self.rows.get(&key) else {
            self.rows.insert(key, (hold, row));
            return;
        };
        // It came or went between two trips. What was read with it may belong to another state: an
        // entry may be here whose node is gone.
        if before.is_some() != row.is_some() {
            self.unrepeatable.push(key);
            return;
        }
        if *known > hold {
            return;
        }
        // A record read again under a firmer hold: who relied on the first answer must find it in
        // the second.
        if let Some(relied) = self.held.get(&key) {
            let same = match (before, &row) {
                (Some(then), Some(now)) => still_holds(*relied, then, now),
                (None, None) => true,
                _ => *relied == Hold::None,
            };
            if !same {
                self.unrepeatable.push(key.clone());
            }
        }
        self.rows.insert(key, (hold, row));
    }

    /// Whether the answer is here.
    fn knows(&self, Want { read, hold }: &Want) -> bool {
        match read {
            Read::Get(key) => {
                self.overlay.get(key).is_some() || self.rows.get(key).is_some_and(|(known, _)| known >= hold)
            }
            Read::Follow(dir, name) => {
                let key = Key::Entry(*dir, name.clone());
                match self.overlay.get(&key) {
                    Some(pending) => match pending.row() {
                        Some(Row::Entry(_, _, to)) => self.knows(&Want::node(to.ino, *hold)),
                        _ => true,
                    },
                    None => self.follows.get(&(*dir, name.clone())).is_some_and(|known| known >= hold),
                }
            }
            Read::Names { dir, limit } => {
                self.names.get(dir).is_some_and(|(known, names)| known >= limit || names.len() < *known)
            }
            Read::All(list) => self.lists.get(list).is_some_and(|(known, _)| known >= hold),
        }
    }

    /// How to ask the engine for it: of an entry that this very batch makes the engine knows
    /// nothing, of the node it may.
    fn question(&self, want: &Want) -> Want {
        if let Read::Follow(dir, name) = &want.read
            && let Some(pending) = self.overlay.get(&Key::Entry(*dir, name.clone()))
            && let Some(Row::Entry(_, _, to)) = pending.row()
        {
            return Want::node(to.ino, want.hold);
        }
        want.clone()
    }

    /// Whether an operation that relies on it that a record is not there makes it, or holds a
    /// record that is there: some engines see an absence only where they insert, and whoever makes
    /// the one must then change the other.
    fn backs_absences(&self, outcome: &Outcome) -> bool {
        let held = outcome.held.iter().filter(|(_, hold)| *hold > Hold::None);
        let found = held.filter_map(|(key, _)| Some((key, &self.rows.get(key)?.1)));
        let (there, absent): (Vec<_>, Vec<_>) = found.partition(|(_, row)| row.is_some());
        let makes = |key: &Key| outcome.writes.iter().any(|write| write.key().as_ref() == Some(key));
        outcome.writes.is_empty() || !there.is_empty() || absent.iter().all(|(key, _)| makes(key))
    }

    /// Takes over what a finished operation decided.
    pub(crate) fn accept(&mut self, outcome: Outcome) {
        debug_assert!(self.backs_absences(&outcome), "nothing backs an absence: {outcome:?}");
        for (key, hold) in outcome.held {
            let strongest = self.held.entry(key).or_insert(hold);
            *strongest = (*strongest).max(hold);
        }
        for row in outcome.remembered {
            let key = row.key();
            self.rows.entry(key.clone()).or_insert((Hold::Lock, Some(row)));
            self.held.insert(key, Hold::Lock);
        }
        self.empty_dirs.extend(outcome.empty_dirs);
        self.same.extend(outcome.same);
        for (key, (space, inodes)) in outcome.rooms {
            let most = self.rooms.entry(key).or_default();
            *most = (most.0.max(space), most.1.max(inodes));
        }
        self.learned.extend(outcome.learned);
        self.lines.extend(outcome.lines);
        for write in outcome.writes {
            let rows = &self.rows;
            self.overlay.apply(write, |key| rows.get(key).is_some_and(|(_, row)| row.is_some()));
        }
    }

    /// What to commit, if anything.
    pub(crate) fn into_commit(mut self, step: Step) -> Option<Commit> {
        let writes = self.take_writes();
        if writes.is_empty() {
            return None;
        }
        let mut expects = Vec::with_capacity(self.held.len() + self.empty_dirs.len() + self.same.len());
        let held = self.held.into_iter().filter(|(_, hold)| *hold > Hold::None);
        expects.extend(held.filter_map(|(key, hold)| match self.rows.remove(&key) {
            Some((_, Some(row))) => Some(Expect::Row(row, hold)),
            Some((_, None)) => Some(Expect::Absent(key)),
            None => None,
        }));
        expects.extend(self.empty_dirs.into_iter().map(Expect::Empty));
        // What adds up to nothing needs no room.
        expects.extend(writes.iter().filter_map(|write| match write {
            Write::Charge(key, ..) => {
                self.rooms.get(key).map(|(space, inodes)| Expect::QuotaAllows(*key, *space, *inodes))
            }
            _ => None,
        }));
        let lists = &mut self.lists;
        expects.extend(
            self.same.into_iter().filter_map(|list| Some(Expect::Same(list, lists.remove(&list)?.1))),
        );
        Some(Commit { step: Some(step), expects, writes })
    }
}

/// The view of one operation.
pub struct View<'a> {
    batch: &'a Batch<'a>,
    outcome: Outcome,
}

impl<'a> View<'a> {
    pub(crate) fn new(batch: &'a Batch<'a>) -> Self {
        Self { batch, outcome: Outcome::default() }
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// The time at which the batch runs.
    pub fn now(&self) -> Time {
        self.batch.now
    }

    /// Whether an attempt before this one met a conflict: time to look at what is usually taken for
    /// granted.
    pub(crate) fn again(&self) -> bool {
        self.batch.again
    }

    /// This client's own knowledge.
    pub(crate) fn known(&self) -> &'a Known<'a> {
        &self.batch.known
    }

    /// Notes what the operation found out.
    pub(crate) fn learns(&mut self, fact: Fact) {
        self.outcome.learned.push(fact);
    }

    /// Whether a file may be destroyed, since this client has it not open. Nobody opens it before
    /// the batch has ended.
    pub(crate) fn destroys(&self, ino: Ino) -> bool {
        self.batch.pending_deletes.add(ino)
    }

    /// Asks for several things at once: one trip for all that are not here yet.
    pub fn want(&self, wants: &[Want]) -> Result<(), Stop> {
        let missing = wants.iter().filter(|want| !self.batch.knows(want));
        let missing: Vec<Want> = missing.map(|want| self.batch.question(want)).collect();
        if missing.is_empty() { Ok(()) } else { Err(Stop::More(missing)) }
    }

    /// A record.
    pub fn get(&mut self, key: &Key, hold: Hold) -> Result<Option<Row>, Stop> {
        if let Some(pending) = self.batch.overlay.get(key) {
            return Ok(pending.row().cloned());
        }
        if self.batch.overlay.in_cleared(key) {
            return Ok(self.with_added(key, None));
        }
        match self.batch.rows.get(key) {
            Some((known, row)) if *known >= hold => {
                let row = row.clone();
                self.hold(key, hold);
                Ok(self.with_added(key, row))
            }
            _ => Err(Stop::More(vec![Want::get(key.clone(), hold)])),
        }
    }

    fn hold(&mut self, key: &Key, hold: Hold) {
        if hold > Hold::None {
            self.outcome.held.push((key.clone(), hold));
        }
    }

    /// Whether an earlier operation of the batch decided what becomes of a record.
    pub(crate) fn is_pending(&self, key: &Key) -> bool {
        self.batch.overlay.get(key).is_some()
    }

    /// The record with what earlier operations of the batch add to it.
    fn with_added(&self, key: &Key, row: Option<Row>) -> Option<Row> {
        let overlay = &self.batch.overlay;
        match (key, row) {
            (Key::Node(ino), Some(Row::Node(_, mut attr))) => {
                if let Some(bump) = overlay.bump(*ino) {
                    bump.apply(&mut attr);
                }
                Some(Row::Node(*ino, attr))
            }
            (Key::Chunk(ino, index), row) => {
                let mut records = match row {
                    Some(Row::Chunk(_, _, records)) => records,
                    _ => Vec::new(),
                };
                records.extend_from_slice(overlay.appended(*ino, *index));
                (!records.is_empty()).then_some(Row::Chunk(*ino, *index, records))
            }
            (Key::Counter(counter), row) => {
                let stored = if let Some(Row::Counter(_, value)) = row { value } else { 0 };
                Some(Row::Counter(*counter, stored + overlay.added(key)))
            }
            (Key::SliceRef(id, size), row) => {
                let stored = if let Some(Row::SliceRef(_, _, refs)) = row { refs } else { 1 };
                Some(Row::SliceRef(*id, *size, stored + overlay.added(key)))
            }
            (Key::Parents(ino, parent), row) => {
                let stored = if let Some(Row::Parents(_, _, count)) = row { count } else { 0 };
                let count = stored + overlay.added(key);
                (count != 0).then_some(Row::Parents(*ino, *parent, count))
            }
            (Key::DirStat(ino), Some(Row::DirStat(_, stat))) => {
                Some(Row::DirStat(*ino, stat.plus(overlay.used(*ino))))
            }
            (Key::Quota(key), row) => {
                let (space, inodes) = overlay.charged(*key);
                let made = if (space, inodes) == (0, 0) { None } else { key.kept() };
                let mut quota = if let Some(Row::Quota(_, stored)) = row { stored } else { made? };
                quota.charge(space, inodes);
                Some(Row::Quota(*key, quota))
            }
            (_, row) => row,
        }
    }

    /// Attributes of an inode, if it exists.
    pub fn node(&mut self, ino: Ino, hold: Hold) -> Result<Option<Attr>, Stop> {
        Ok(match self.get(&Key::Node(ino), hold)? {
            Some(Row::Node(_, attr)) => Some(attr),
            _ => None,
        })
    }

    /// What a name stands for, if anything.
    pub fn entry(&mut self, dir: Ino, name: &Name, hold: Hold) -> Result<Option<Entry>, Stop> {
        Ok(match self.get(&Key::Entry(dir, name.clone()), hold)? {
            Some(Row::Entry(_, _, entry)) => Some(entry),
            _ => None,
        })
    }

    /// What a name stands for, with the attributes of the node; `None` for the attributes if the
    /// node is missing.
    pub fn follow(
        &mut self,
        dir: Ino,
        name: &Name,
        hold: Hold,
    ) -> Result<Option<(Entry, Option<Attr>)>, Stop> {
        self.want(&[Want::follow(dir, name.clone(), hold)])?;
        let key = Key::Entry(dir, name.clone());
        let entry = match self.batch.overlay.get(&key) {
            Some(pending) => pending.row(),
            None => self.batch.rows.get(&key).and_then(|(_, row)| row.as_ref()),
        };
        let Some(Row::Entry(_, _, entry)) = entry else { return Ok(None) };
        let entry = *entry;
        if self.batch.overlay.get(&key).is_none() {
            self.hold(&key, hold);
        }
        let attr = self.node(entry.ino, hold)?;
        Ok(Some((entry, attr)))
    }

    /// All records of a small collection. Under [`Hold::Lock`] (lists of locks only) it is the same
    /// at the commit.
    pub fn all(&mut self, list: List, hold: Hold) -> Result<Vec<Row>, Stop> {
        let overlay = &self.batch.overlay;
        let mut rows: Vec<Row> = if overlay.is_cleared(&list) {
            Vec::new()
        } else {
            self.want(&[Want::all(list, hold)])?;
            if hold == Hold::Lock {
                self.outcome.same.push(list);
            }
            self.batch.lists.get(&list).map(|(_, rows)| rows.clone()).unwrap_or_default()
        };
        rows.retain(|row| overlay.get(&row.key()).is_none() && !overlay.in_cleared(&row.key()));
        rows.extend(overlay.in_list(&list).filter_map(|(_, pending)| pending.row().cloned()));
        match list {
            List::Parents(ino) => {
                for (parent, by) in overlay.links_of(ino) {
                    match rows.iter_mut().find(|row| row.key() == Key::Parents(ino, parent)) {
                        Some(Row::Parents(_, _, count)) => *count += by,
                        _ => rows.push(Row::Parents(ino, parent, by)),
                    }
                }
            }
            List::Chunks(ino, from, to) => {
                for (index, slices) in overlay.appended_chunks(ino).filter(|(at, _)| (from..to).contains(at))
                {
                    match rows.iter_mut().find(|row| row.key() == Key::Chunk(ino, index)) {
                        Some(Row::Chunk(_, _, records)) => records.extend_from_slice(slices),
                        _ => rows.push(Row::Chunk(ino, index, slices.to_vec())),
                    }
                }
            }
            _ => {}
        }
        Ok(rows)
    }

    /// Whether a directory, whose node this operation must hold with [`Hold::Lock`], has no
    /// entries. If so, it has none at the commit either.
    pub fn is_empty(&mut self, dir: Ino) -> Result<bool, Stop> {
        let mut vanishing = 0;
        for (_, appears) in self.batch.overlay.names(dir) {
            if appears {
                return Ok(false);
            }
            vanishing += 1;
        }
        self.want(&[Want::names(dir, vanishing + 1)])?;
        let names = self.batch.names.get(&dir).map_or(&[][..], |(_, names)| names);
        let stays = |name: &Name| self.batch.overlay.get(&Key::Entry(dir, name.clone())).is_none();
        if names.iter().any(stays) {
            return Ok(false);
        }
        self.outcome.empty_dirs.push(dir);
        Ok(true)
    }
}
