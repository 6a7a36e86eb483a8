//! Changes as writes of the script, each with the checks that its precondition needs.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, List, Write},
    schema::{Key, Row, encode_slices},
};
use sluice_types::{Attr, Ino, Time};
use smallvec::{SmallVec, smallvec};

use super::arguments::{Action, Builder, Mark, Op, Phase};
use crate::{
    codec::{Cell, Shape, encode},
    keys::{Keys, Text, begin, number},
};

/// What is added to nodes: links, lower bound of the times, position of the first write.
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
            Write::Insert(row) => self.put(row, true, bumps, mark),
            Write::Put(row) => self.put(row, false, bumps, mark),
            Write::Delete(key) => self.delete(key, !held.contains(key), mark),
            Write::Discard(key) => self.delete(key, false, mark),
            Write::Clear(list) => self.clear(*list, mark),
            // All bumps of a node together, after the other writes, and so all lines.
            Write::Bump { .. } | Write::Notify(_) | Write::Log(_) => {}
            Write::Count(counter, by) => {
                let cell = &keys.cells(&Key::Counter(*counter))[0];
                self.cell(Action::Add, cell, Some(&number(*by)), mark);
            }
            Write::Refer(id, size, by) => self.add(&Key::SliceRef(*id, *size), *by, mark),
            Write::Link(ino, parent, by) => self.add(&Key::Parents(*ino, *parent), *by, mark),
            Write::Use(ino, by) => {
                self.add_joined(*b"du", &Key::DirStat(*ino), &[by.space, by.inodes, by.length], mark);
            }
            Write::Charge(key, space, inodes) => {
                let op = if key.kept().is_some() { *b"qk" } else { *b"qc" };
                self.add_joined(op, &Key::Quota(*key), &[*space, *inodes], mark);
            }
            Write::Append(_, _, slices) if slices.is_empty() => {}
            Write::Append(ino, index, slices) => {
                let list = &keys.cells(&Key::Chunk(*ino, *index))[0].key;
                self.item(Phase::Write, *b"lp", &[], &[list, &encode_slices(slices)], mark);
            }
        }
    }

    /// Appends the lines of the change log, and raises the number of the last one.
    pub(super) fn lines(&mut self, commit: &Commit) {
        let (log, mut count) = (self.keys.log(), 0);
        for (at, write) in commit.writes.iter().enumerate() {
            if let Write::Log(line) = write {
                self.item(Phase::Write, *b"gl", &[&log], &[line.as_bytes()], Mark::Write(at));
                count += 1;
            }
        }
        if count > 0 {
            self.item(Phase::Check, *b"lc", &[&log], &[], Mark::Step);
            let cell = Cell { shape: Shape::Counter, key: self.keys.log_end(), field: Text::new() };
            self.cell(Action::Add, &cell, Some(&number(count)), Mark::Step);
        }
    }

    /// Adds to a number in a hash. All additions to the same number are sent as one sum.
    fn add(&mut self, key: &Key, by: i64, mark: Mark) {
        if let Some(cell) = self.keys.cells(key).pop() {
            let sum = self.sums.entry(cell).or_insert((0, mark));
            sum.0 = sum.0.saturating_add(by);
        }
    }

    /// Adds to a record that lies in three hashes.
    fn add_joined(&mut self, op: Op, key: &Key, by: &[i64], mark: Mark) {
        let cells = self.keys.cells(key);
        let head: SmallVec<[&[u8]; 3]> = cells.iter().map(|cell| &cell.key[..]).collect();
        let by: SmallVec<[Text; 3]> = by.iter().map(|by| number(*by)).collect();
        let mut args: SmallVec<[&[u8]; 4]> = smallvec![&cells[0].field[..]];
        args.extend(by.iter().map(|by| &by[..]));
        self.item(Phase::Write, op, &head, &args, mark);
    }

    /// Writes the sums.
    pub(super) fn add_up(&mut self) {
        for (cell, (by, mark)) in std::mem::take(&mut self.sums) {
            // If the hash is cleared first, the values that the checks found are gone by then.
            let cleared = self.cleared.contains(&cell.key);
            if !cleared || by > 0 {
                let action = if cleared { Action::Set } else { Action::Add };
                self.cell(action, &cell, Some(&number(by)), mark);
            }
        }
    }

    /// Writes a record. If `new`, it must not exist yet.
    fn put(&mut self, row: &Row, new: bool, bumps: &mut Bumps, mark: Mark) {
        let key = row.key();
        let values = self.values(row, bumps, mark);
        for (at, (cell, value)) in self.keys.cells(&key).iter().zip(&values).enumerate() {
            // The first cell decides whether the record exists. Other cells may be empty.
            let decides = new && at == 0;
            if decides && value.is_none() {
                self.cell(Action::Absent, cell, None, mark);
            } else if !decides && value.is_some() && cell.shape == Shape::List {
                self.cell(Action::Remove, cell, None, mark);
            }
            let action = match value {
                Some(_) if decides => Action::Insert,
                Some(_) => Action::Set,
                None => Action::Remove,
            };
            self.cell(action, cell, value.as_deref(), mark);
        }
        if let Some((lock, sid)) = lock_of(self.keys, &key) {
            // So that the locks are found when the session expires.
            let cell = Cell { shape: Shape::Member, key: self.keys.locked(sid), field: lock };
            self.cell(Action::Set, &cell, None, mark);
        }
    }

    /// The values of a record, with what the same commit adds to it.
    fn values(&mut self, row: &Row, bumps: &mut Bumps, mark: Mark) -> SmallVec<[Option<Vec<u8>>; 3]> {
        if let Row::Node(ino, attr) = row
            && let Some((nlink, time, _)) = bumps.remove(ino)
        {
            let key = self.keys.node(*ino);
            self.item(Phase::Check, *b"sp", &[], &[&key], mark);
            return encode(&Row::Node(*ino, bumped(*attr, nlink, time)));
        }
        encode(row)
    }

    /// `check`: whether its existence must still be checked.
    fn delete(&mut self, key: &Key, check: bool, mark: Mark) {
        for (at, cell) in self.keys.cells(key).iter().enumerate() {
            let action = if check && at == 0 { Action::Delete } else { Action::Remove };
            self.cell(action, cell, None, mark);
        }
        if let Some((lock, sid)) = lock_of(self.keys, key) {
            let (session, index) = (begin(sid, b'_'), self.keys.locked(sid));
            self.item(Phase::Last, *b"lu", &[], &[&lock, &session, &index], mark);
        }
    }

    fn clear(&mut self, list: List, mark: Mark) {
        let keys = self.keys;
        let mut clear = |op: &Op, head: &[&[u8]]| self.item(Phase::Clear, *op, head, &[], mark);
        match (list, keys.list(list)) {
            (List::Flocks(_) | List::Plocks(_), Some(lock)) => clear(b"xl", &[&lock, &keys.word("locked")]),
            (List::Lanes(writer), Some(writers)) => clear(b"xf", &[&writers, &begin(writer, b':')]),
            (List::Chunks(ino, from, to), _) => {
                let bounds = [from, to].map(number);
                clear(b"xc", &[&keys.chunks(ino), &bounds[0], &bounds[1]]);
            }
            (List::Xattrs(_) | List::Parents(_) | List::Changes(_), Some(hash)) => {
                self.item(Phase::Clear, *b"sr", &[], &[&hash], mark);
                self.cleared.insert(hash);
            }
            // The contract says that these are not cleared.
            _ => {}
        }
    }
}

/// The Redis key of a lock and the session that holds it.
fn lock_of(keys: &Keys, key: &Key) -> Option<(Text, u64)> {
    let (Key::Flock(_, owner) | Key::Plock(_, owner)) = key else { return None };
    keys.cells(key).pop().map(|cell| (cell.key, owner.sid))
}

/// The 12 bytes of a time in a node, which from 1970 on sort as the times do.
pub(super) fn encode_time(time: Time) -> Vec<u8> {
    [&time.sec.to_be_bytes()[..], &time.nsec.to_be_bytes()].concat()
}
