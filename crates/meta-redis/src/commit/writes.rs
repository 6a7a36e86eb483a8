//! Changes as writes of the script, each with the checks that its precondition needs.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, List, Write},
    schema::{Key, Row, encode_slices},
};
use sluice_types::{Attr, Ino, Time};
use smallvec::SmallVec;

use super::{
    arguments::{Builder, Mark, Phase},
    checks::lenient,
};
use crate::{
    codec::{Cell, encode},
    keys::{Keys, Text, number, quota_field, signed},
};

/// What is added to nodes: links, lower bound of the times, place of the first write.
pub(super) type Bumps = FxHashMap<Ino, (i32, Option<Time>, usize)>;

pub(super) fn bumps_of(commit: &Commit) -> Bumps {
    let mut bumps = Bumps::default();
    for (at, write) in commit.writes.iter().enumerate() {
        if let Write::Bump { ino, nlink, time } = write {
            let bump = bumps.entry(*ino).or_insert((0, None, at));
            *bump = (bump.0.saturating_add(*nlink), bump.1.max(*time), bump.2);
        }
    }
    bumps
}

fn bumped(mut attr: Attr, nlink: i32, time: Option<Time>) -> Attr {
    attr.nlink = attr.nlink.saturating_add_signed(nlink);
    if let Some(time) = time {
        attr.mtime = attr.mtime.max(time);
        attr.ctime = attr.ctime.max(time);
    }
    attr
}

impl Builder<'_> {
    pub(super) fn write(&mut self, write: &Write, mark: Mark, held: &FxHashSet<Key>, bumps: &mut Bumps) {
        let keys = self.keys;
        match write {
            Write::Insert(row) => self.insert(row, bumps, mark),
            Write::Put(row) => self.put(row, bumps, mark),
            Write::Delete(key) => self.delete(key, !held.contains(key), mark),
            Write::Discard(key) => self.delete(key, false, mark),
            Write::Clear(list) => self.clear(*list, mark),
            // All of a node together, behind the others.
            Write::Bump { .. } | Write::Notify(_) => {}
            Write::Count(counter, by) => {
                self.item(Phase::Write, "ci", None, &[&keys.counter(*counter), &signed(*by)], mark);
            }
            Write::Refer(id, size, by) => {
                let Some(Cell::Field(hash, field)) = keys.cells(&Key::SliceRef(*id, *size)).pop() else {
                    return;
                };
                self.add("kn", hash, field, *by, mark);
            }
            Write::Link(ino, parent, by) => {
                self.add("pn", keys.parents(*ino), number(parent.0), *by, mark);
            }
            Write::Use(ino, by) => {
                let [space, inodes, length] = keys.dir_stats();
                let adds = [signed(by.space), signed(by.inodes), signed(by.length)];
                let args: [&[u8]; 4] = [&number(ino.0), &adds[0], &adds[1], &adds[2]];
                self.item_under(Phase::Write, "us", Text::new(), &[&space, &inodes, &length], &args, mark);
            }
            Write::Charge(key, space, inodes) => {
                let [limits, used_space, used_inodes] = keys.quota(*key);
                let args: [&[u8]; 3] = [&quota_field(*key), &signed(*space), &signed(*inodes)];
                let head: [&[u8]; 3] = [&limits, &used_space, &used_inodes];
                let op = if key.kept().is_some() { "qk" } else { "qc" };
                self.item_under(Phase::Write, op, limits.clone(), &head, &args, mark);
            }
            Write::Append(_, _, slices) if slices.is_empty() => {}
            Write::Append(ino, index, slices) => {
                let list = keys.chunk(*ino, *index);
                self.item(Phase::Write, "lp", None, &[&list, &encode_slices(slices)], mark);
            }
        }
    }

    /// Adds to a number in a hash; what is added to the same one goes out as one sum.
    fn add(&mut self, op: &'static str, hash: Text, field: Text, by: i64, mark: Mark) {
        let sum = self.sums.entry((op, hash, field)).or_insert((0, mark));
        sum.0 = sum.0.saturating_add(by);
    }

    /// Writes the sums.
    pub(super) fn add_up(&mut self) {
        for ((op, hash, field), (by, mark)) in std::mem::take(&mut self.sums) {
            if self.cleared.contains(&hash) {
                // What the checks find there is gone by then.
                if by > 0 {
                    self.set(&Cell::Field(hash, field), &signed(by), mark);
                }
                continue;
            }
            self.checked.insert(hash.clone());
            self.item(Phase::Write, op, Some(&hash), &[&field, &signed(by)], mark);
        }
    }

    pub(super) fn insert(&mut self, row: &Row, bumps: &mut Bumps, mark: Mark) {
        let key = row.key();
        let mut values = self.values(row, bumps, mark).into_iter();
        let mut cells = self.keys.cells(&key).into_iter();
        let (Some(cell), Some(value)) = (cells.next(), values.next()) else { return };
        let write = Phase::Write;
        if !matches!(cell, Cell::Str(_)) {
            self.checked.insert(cell.container().clone());
        }
        match (&cell, &value) {
            (Cell::Str(name), Some(value)) => self.item(write, "si", None, &[name, value], mark),
            (Cell::Field(hash, field), Some(value)) => {
                self.item(write, lenient(&key, ["hi", "ki", "pi"]), Some(hash), &[field, value], mark);
            }
            (Cell::Score(set, member), Some(score)) => {
                self.item(write, "zi", Some(set), &[score, member], mark);
            }
            (Cell::Member(set, member), _) => self.item(write, "ti", Some(set), &[member], mark),
            (Cell::List(name), Some(records)) => self.item(write, "li", None, &[name, records], mark),
            // A record that is stored as nothing.
            (_, None) => {
                self.absent(&key, mark);
                self.unset(&cell, mark);
            }
        }
        for (cell, value) in cells.zip(values) {
            self.put_cell(&cell, value.as_deref(), mark);
        }
        self.index_lock(&key, mark);
    }

    pub(super) fn put(&mut self, row: &Row, bumps: &mut Bumps, mark: Mark) {
        let key = row.key();
        let values = self.values(row, bumps, mark);
        for (cell, value) in self.keys.cells(&key).iter().zip(values) {
            self.put_cell(cell, value.as_deref(), mark);
        }
        self.index_lock(&key, mark);
    }

    /// The values of a record, with what the same commit adds to it.
    pub(super) fn values(
        &mut self,
        row: &Row,
        bumps: &mut Bumps,
        mark: Mark,
    ) -> SmallVec<[Option<Vec<u8>>; 3]> {
        if let Row::Node(ino, attr) = row
            && let Some((nlink, time, _)) = bumps.remove(ino)
        {
            let key = self.keys.node(*ino);
            self.item(Phase::Check, "sp", None, &[&key], mark);
            return encode(&Row::Node(*ino, bumped(*attr, nlink, time)));
        }
        encode(row)
    }

    pub(super) fn put_cell(&mut self, cell: &Cell, value: Option<&[u8]>, mark: Mark) {
        match value {
            Some(value) => self.set(cell, value, mark),
            None => self.unset(cell, mark),
        }
    }

    pub(super) fn set(&mut self, cell: &Cell, value: &[u8], mark: Mark) {
        match cell {
            Cell::Str(name) => self.item(Phase::Write, "ss", None, &[name, value], mark),
            Cell::Field(hash, field) => {
                self.typed.push(("th", hash.clone()));
                self.item(Phase::Write, "hs", Some(hash), &[field, value], mark);
            }
            Cell::Score(set, member) => {
                self.typed.push(("tz", set.clone()));
                self.item(Phase::Write, "zs", Some(set), &[value, member], mark);
            }
            Cell::Member(set, member) => {
                self.typed.push(("tt", set.clone()));
                self.item(Phase::Write, "ts", Some(set), &[member], mark);
            }
            Cell::List(name) => {
                self.item(Phase::Clear, "sr", None, &[name], mark);
                self.item(Phase::Write, "lw", None, &[name, value], mark);
            }
        }
    }

    pub(super) fn unset(&mut self, cell: &Cell, mark: Mark) {
        match cell {
            Cell::Str(name) | Cell::List(name) => self.item(Phase::Clear, "sr", None, &[name], mark),
            Cell::Field(hash, field) => {
                self.typed.push(("th", hash.clone()));
                self.item(Phase::Write, "hr", Some(hash), &[field], mark);
            }
            Cell::Score(set, member) => {
                self.typed.push(("tz", set.clone()));
                self.item(Phase::Write, "zr", Some(set), &[member], mark);
            }
            Cell::Member(set, member) => {
                self.typed.push(("tt", set.clone()));
                self.item(Phase::Write, "tr", Some(set), &[member], mark);
            }
        }
    }

    /// `check`: whether its existence is yet to be found out.
    pub(super) fn delete(&mut self, key: &Key, check: bool, mark: Mark) {
        let cells = self.keys.cells(key);
        let mut cells = cells.iter();
        match cells.next() {
            Some(cell) if check => {
                if !matches!(cell, Cell::Str(_) | Cell::List(_)) {
                    self.checked.insert(cell.container().clone());
                }
                match cell {
                    Cell::Str(name) | Cell::List(name) => self.item(Phase::Clear, "sd", None, &[name], mark),
                    Cell::Field(hash, field) => self.item(Phase::Write, "hd", Some(hash), &[field], mark),
                    Cell::Score(set, member) => self.item(Phase::Write, "zd", Some(set), &[member], mark),
                    Cell::Member(set, member) => self.item(Phase::Write, "td", Some(set), &[member], mark),
                }
            }
            Some(cell) => self.unset(cell, mark),
            None => {}
        }
        cells.for_each(|cell| self.unset(cell, mark));
        if let Some((lock, sid)) = lock_of(self.keys, key) {
            let (index, mut session) = (self.keys.locked(sid), number(sid));
            session.push(b'_');
            let mut whose = lock.clone();
            whose.extend_from_slice(&session);
            self.item_under(Phase::Last, "lu", whose, &[&lock, &session, &index], &[], mark);
        }
    }

    /// Notes where a session has locks, so that they are found when it is gone.
    pub(super) fn index_lock(&mut self, key: &Key, mark: Mark) {
        if let Some((lock, sid)) = lock_of(self.keys, key) {
            self.set(&Cell::Member(self.keys.locked(sid), lock), &[], mark);
        }
    }

    pub(super) fn clear(&mut self, list: List, mark: Mark) {
        let keys = self.keys;
        let whole = |ino: Ino| match list {
            List::Xattrs(_) => keys.xattrs(ino),
            _ => keys.parents(ino),
        };
        let mut under = |op, head: [&[u8]; 3], count: usize| {
            let whose = Text::from_slice(head[0]);
            self.item_under(Phase::Clear, op, whose, &head[..count], &[], mark);
        };
        match list {
            List::Flocks(ino) => under("xl", [&keys.flocks(ino), &keys.word("locked"), &[]], 2),
            List::Plocks(ino) => under("xl", [&keys.plocks(ino), &keys.word("locked"), &[]], 2),
            List::Chunks(ino, from, to) => {
                let bounds = [number(u64::from(from)), number(u64::from(to))];
                under("xc", [&keys.chunks(ino), &bounds[0], &bounds[1]], 3);
            }
            List::Lanes(writer) => {
                let mut fields = number(writer);
                fields.push(b':');
                under("xf", [&keys.writers(), &fields, &[]], 2);
            }
            List::Changes(writer) => self.item(Phase::Clear, "sr", None, &[&keys.notices(writer)], mark),
            List::Xattrs(ino) | List::Parents(ino) => {
                let hash = whole(ino);
                self.item(Phase::Clear, "sr", None, &[&hash], mark);
                self.cleared.insert(hash);
            }
            // The contract says that these are not cleared.
            List::Sustained(_) | List::LocksOf(_) => {}
        }
    }
}

/// The Redis key of a lock and the session that holds it.
fn lock_of(keys: &Keys, key: &Key) -> Option<(Text, u64)> {
    match key {
        Key::Flock(ino, owner) => Some((keys.flocks(*ino), owner.sid)),
        Key::Plock(ino, owner) => Some((keys.plocks(*ino), owner.sid)),
        _ => None,
    }
}

/// The 12 bytes of a time in a node, which from 1970 on sort as the times do.
pub(super) fn encode_time(time: Time) -> Vec<u8> {
    [&time.sec.to_be_bytes()[..], &time.nsec.to_be_bytes()].concat()
}
