//! A commit turned into the arguments of one script, and its answer into keys.
//!
//! Whatever may fail stands among the checks, so that the script's writes cannot: expectations, the preconditions of
//! inserts, deletes and bumps, and the Redis type of every key that is written to. Items of one kind that lie in one
//! Redis key go out as one operation, so that the server does little per record.

use redis::Value;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, Expect, Hold, List, Write},
    schema::{Key, Row, encode_attr, encode_slices},
};
use sluice_types::{Attr, Ino, Time};

use crate::{
    codec::{Cell, encode},
    keys::{Keys, Text, number, quota_field, signed},
    pipeline::{Args, Pipeline},
    script::COMMIT,
    watch,
};

/// Most arguments of one operation: the script cannot unpack more than 8000.
const MOST: usize = 4000;

/// What the script said.
pub(crate) enum Outcome {
    /// All is written.
    Done,
    /// These did not hold; nothing is written.
    Failed(Vec<Key>),
}

/// What an item of an operation stands for, should it fail.
#[derive(Clone, Copy)]
enum Mark {
    Step,
    Expect(usize),
    Write(usize),
}

/// One operation of the script.
struct Group {
    op: &'static str,
    args: Args,
    /// Arguments before the first item.
    head: usize,
    /// Arguments of an item.
    stride: usize,
    marks: Vec<Mark>,
}

/// When an operation runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// Only checks.
    Check,
    /// Removals of whole keys, before anything is made anew.
    Clear,
    Write,
    /// What looks at the result, and messages.
    Last,
}

/// A commit ready to be sent.
pub(crate) struct Plan<'c> {
    commit: &'c Commit,
    pipeline: Pipeline,
    /// Per operation: position of its first item, arguments of an item, what the items stand for.
    spans: Vec<(usize, usize, Vec<Mark>)>,
}

impl<'c> Plan<'c> {
    /// `raw` has the stored text of records that may be spelled in several ways.
    pub(crate) fn new(keys: &Keys, commit: &'c Commit, raw: &FxHashMap<Key, Vec<u8>>) -> Self {
        let mut builder = Builder {
            keys,
            raw,
            groups: Vec::new(),
            index: FxHashMap::default(),
            checked: FxHashSet::default(),
            typed: Vec::new(),
        };
        builder.commit(commit);
        let (args, spans) = builder.finish();
        Self { commit, pipeline: Pipeline::of_script(&COMMIT, args), spans }
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Reads the script's answer; `None` if it is none.
    pub(crate) fn outcome(&self, answer: &Value) -> Option<Outcome> {
        let Value::Array(failed) = answer else {
            return matches!(answer, Value::Nil).then_some(Outcome::Done);
        };
        let mut keys = Vec::with_capacity(failed.len());
        for position in failed {
            let Value::Int(position) = position else { return None };
            keys.push(self.key_at(usize::try_from(*position).ok()?)?);
        }
        keys.sort_unstable();
        keys.dedup();
        Some(Outcome::Failed(keys))
    }

    fn key_at(&self, position: usize) -> Option<Key> {
        let (start, stride, marks) = self.spans.iter().rfind(|(start, ..)| *start <= position)?;
        Some(match marks.get((position - start) / stride)? {
            Mark::Step => self.commit.step.map(|step| Key::Writer(step.writer, step.lane))?,
            Mark::Expect(at) => self.commit.expects[*at].key(),
            Mark::Write(at) => match &self.commit.writes[*at] {
                Write::Insert(row) | Write::Put(row) => row.key(),
                Write::Delete(key) => key.clone(),
                Write::Bump { ino, .. } => Key::Node(*ino),
                _ => return None,
            },
        })
    }
}

struct Builder<'b> {
    keys: &'b Keys,
    raw: &'b FxHashMap<Key, Vec<u8>>,
    groups: Vec<(Phase, Group)>,
    index: FxHashMap<(&'static str, Text), usize>,
    /// Redis keys whose type some check finds out.
    checked: FxHashSet<Text>,
    /// Redis keys that are written to, with the operation that finds out their type.
    typed: Vec<(&'static str, Text)>,
}

impl Builder<'_> {
    /// Adds an item to the operation `op` on `key`.
    fn item(&mut self, phase: Phase, op: &'static str, key: Option<&Text>, args: &[&[u8]], mark: Mark) {
        let head: &[&[u8]] = match key {
            Some(key) => &[key],
            None => &[],
        };
        let whose = key.cloned().unwrap_or_default();
        self.item_under(phase, op, whose, head, args, mark);
    }

    fn item_under(
        &mut self,
        phase: Phase,
        op: &'static str,
        whose: Text,
        head: &[&[u8]],
        args: &[&[u8]],
        mark: Mark,
    ) {
        let last = self.index.get(&(op, whose.clone())).copied();
        let full = |at: &usize| self.groups[*at].1.args.len() + args.len() > MOST;
        let at = last.filter(|at| !full(at)).unwrap_or_else(|| {
            let stride = args.len().max(1);
            let mut group = Group { op, args: Args::default(), head: head.len(), stride, marks: Vec::new() };
            head.iter().for_each(|arg| group.args.push(arg));
            self.groups.push((phase, group));
            self.index.insert((op, whose), self.groups.len() - 1);
            self.groups.len() - 1
        });
        let group = &mut self.groups[at].1;
        args.iter().for_each(|arg| group.args.push(arg));
        group.marks.push(mark);
    }

    fn commit(&mut self, commit: &Commit) {
        if let Some(step) = commit.step {
            let key = Key::Writer(step.writer, step.lane);
            let cells = self.keys.cells(&key);
            self.equal(&cells[0], &key, &number(step.from), Mark::Step);
            self.set(&cells[0], &number(step.to), Mark::Step);
        }
        let inserted: FxHashSet<Key> = commit
            .writes
            .iter()
            .filter_map(|write| if let Write::Insert(row) = write { Some(row.key()) } else { None })
            .collect();
        let mut held: FxHashSet<Key> = FxHashSet::default();
        for (at, expect) in commit.expects.iter().enumerate() {
            match expect {
                Expect::Row(_, Hold::None) => {}
                Expect::Row(row, hold) => {
                    held.insert(row.key());
                    self.expect_row(row, *hold, Mark::Expect(at));
                }
                // An insert finds that out itself.
                Expect::Absent(key) if inserted.contains(key) => {}
                Expect::Absent(key) => self.absent(key, Mark::Expect(at)),
                Expect::Same(list, rows) => self.same(*list, rows, Mark::Expect(at)),
                Expect::Vacant(dir) => {
                    let going = commit
                        .writes
                        .iter()
                        .filter(|write| matches!(write, Write::Delete(Key::Entry(of, _)) if of == dir))
                        .count();
                    let key = self.keys.dir(*dir);
                    let count = number(going as u64);
                    self.checked.insert(key.clone());
                    self.item(Phase::Check, "ve", Some(&key), &[&count], Mark::Expect(at));
                }
            }
        }
        let mut bumps = bumps_of(commit);
        for (at, write) in commit.writes.iter().enumerate() {
            self.write(write, Mark::Write(at), &held, &mut bumps);
        }
        for (ino, (nlink, time, at)) in bumps {
            let key = self.keys.node(ino);
            let time = time.map(encode_time).unwrap_or_default();
            self.item(Phase::Write, "nb", None, &[&key, &signed(i64::from(nlink)), &time], Mark::Write(at));
        }
    }

    /// As many records as there were, and each as it was.
    fn same(&mut self, list: List, rows: &[Row], mark: Mark) {
        let hash = match list {
            List::Flocks(ino) => self.keys.flocks(ino),
            List::Plocks(ino) => self.keys.plocks(ino),
            List::Xattrs(ino) => self.keys.xattrs(ino),
            // The contract knows no other.
            _ => return,
        };
        self.checked.insert(hash.clone());
        self.item(Phase::Check, "ve", Some(&hash), &[&number(rows.len() as u64)], mark);
        rows.iter().for_each(|row| self.expect_row(row, Hold::Lock, mark));
    }

    fn expect_row(&mut self, row: &Row, hold: Hold, mark: Mark) {
        let key = row.key();
        if let Row::Node(ino, attr) = row {
            let op = if hold == Hold::Guard { "ng" } else { "nl" };
            let node = self.keys.node(*ino);
            return self.item(Phase::Check, op, None, &[&node, &encode_attr(attr)], mark);
        }
        let values = encode(row);
        for (at, (cell, value)) in self.keys.cells(&key).iter().zip(values).enumerate() {
            // A number beside the first may be missing where it would be 0.
            let optional = match key {
                Key::Quota(_) => at > 0,
                Key::DirStat(_) => at == 2,
                _ => false,
            };
            match value {
                Some(value) if optional && value == b"0" => self.absent_field(cell, "ka", mark),
                Some(value) => {
                    let text =
                        matches!(key, Key::Setting | Key::Session(_)) && !matches!(cell, Cell::Score(..));
                    let stored = self.raw.get(&key).filter(|_| text);
                    let value = stored.filter(|stored| spells(stored, row)).cloned().unwrap_or(value);
                    self.equal(cell, &key, &value, mark);
                }
                None if at == 0 => self.absent(&key, mark),
                None => self.absent_field(cell, "ha", mark),
            }
        }
    }

    fn equal(&mut self, cell: &Cell, key: &Key, value: &[u8], mark: Mark) {
        self.checked.insert(cell.container().clone());
        let check = Phase::Check;
        match cell {
            Cell::Str(name) if matches!(key, Key::Counter(_)) => {
                self.item(check, "ce", None, &[name, value], mark);
            }
            Cell::Str(name) => self.item(check, "se", None, &[name, value], mark),
            Cell::Field(hash, field) => self.item(check, "he", Some(hash), &[field, value], mark),
            Cell::Score(set, member) => self.item(check, "ze", Some(set), &[value, member], mark),
            Cell::Member(set, member) => self.item(check, "te", Some(set), &[member], mark),
            Cell::List(name) => self.item(check, "le", None, &[name, value], mark),
        }
    }

    fn absent(&mut self, key: &Key, mark: Mark) {
        let cells = self.keys.cells(key);
        match &cells[0] {
            Cell::Str(name) | Cell::List(name) => self.item(Phase::Check, "sa", None, &[name], mark),
            Cell::Score(set, member) => {
                self.checked.insert(set.clone());
                self.item(Phase::Check, "za", Some(set), &[member], mark);
            }
            Cell::Member(set, member) => {
                self.checked.insert(set.clone());
                self.item(Phase::Check, "ta", Some(set), &[member], mark);
            }
            cell @ Cell::Field(..) => self.absent_field(cell, lenient(key, ["ha", "ka", "pa"]), mark),
        }
    }

    fn absent_field(&mut self, cell: &Cell, op: &'static str, mark: Mark) {
        if let Cell::Field(hash, field) = cell {
            self.checked.insert(hash.clone());
            self.item(Phase::Check, op, Some(hash), &[field], mark);
        }
    }

    fn write(&mut self, write: &Write, mark: Mark, held: &FxHashSet<Key>, bumps: &mut Bumps) {
        let keys = self.keys;
        match write {
            Write::Insert(row) => self.insert(row, bumps, mark),
            Write::Put(row) => self.put(row, bumps, mark),
            Write::Delete(key) => self.delete(key, !held.contains(key), mark),
            Write::Discard(key) => self.delete(key, false, mark),
            Write::Clear(list) => self.clear(*list, mark),
            // All of a node together, behind the others.
            Write::Bump { .. } => {}
            Write::Count(counter, by) => {
                self.item(Phase::Write, "ci", None, &[&keys.counter(*counter), &signed(*by)], mark);
            }
            Write::Refer(id, size, by) => {
                let Some(Cell::Field(hash, field)) = keys.cells(&Key::SliceRef(*id, *size)).pop() else {
                    return;
                };
                self.checked.insert(hash.clone());
                self.item(Phase::Write, "kn", Some(&hash), &[&field, &signed(*by)], mark);
            }
            Write::Link(ino, parent, by) => {
                let hash = keys.parents(*ino);
                self.checked.insert(hash.clone());
                self.item(Phase::Write, "pn", Some(&hash), &[&number(parent.0), &signed(*by)], mark);
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
                self.item_under(Phase::Write, "qc", limits.clone(), &head, &args, mark);
            }
            Write::Append(_, _, slices) if slices.is_empty() => {}
            Write::Append(ino, index, slices) => {
                let list = keys.chunk(*ino, *index);
                self.item(Phase::Write, "lp", None, &[&list, &encode_slices(slices)], mark);
            }
            Write::Tell(change) => {
                let channel = watch::channel(keys);
                self.item(Phase::Last, "pb", Some(&channel), &[&watch::encode(*change)], mark);
            }
        }
    }

    fn insert(&mut self, row: &Row, bumps: &mut Bumps, mark: Mark) {
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
                self.item(write, "zi", Some(set), &[score, member], mark)
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

    fn put(&mut self, row: &Row, bumps: &mut Bumps, mark: Mark) {
        let key = row.key();
        let values = self.values(row, bumps, mark);
        for (cell, value) in self.keys.cells(&key).iter().zip(values) {
            self.put_cell(cell, value.as_deref(), mark);
        }
        self.index_lock(&key, mark);
    }

    /// The values of a record, with what the same commit adds to it.
    fn values(
        &mut self,
        row: &Row,
        bumps: &mut Bumps,
        mark: Mark,
    ) -> smallvec::SmallVec<[Option<Vec<u8>>; 3]> {
        if let Row::Node(ino, attr) = row
            && let Some((nlink, time, _)) = bumps.remove(ino)
        {
            let key = self.keys.node(*ino);
            self.item(Phase::Check, "sp", None, &[&key], mark);
            return encode(&Row::Node(*ino, bumped(*attr, nlink, time)));
        }
        encode(row)
    }

    fn put_cell(&mut self, cell: &Cell, value: Option<&[u8]>, mark: Mark) {
        match value {
            Some(value) => self.set(cell, value, mark),
            None => self.unset(cell, mark),
        }
    }

    fn set(&mut self, cell: &Cell, value: &[u8], mark: Mark) {
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

    fn unset(&mut self, cell: &Cell, mark: Mark) {
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
    fn delete(&mut self, key: &Key, check: bool, mark: Mark) {
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
    fn index_lock(&mut self, key: &Key, mark: Mark) {
        if let Some((lock, sid)) = lock_of(self.keys, key) {
            self.set(&Cell::Member(self.keys.locked(sid), lock), &[], mark);
        }
    }

    fn clear(&mut self, list: List, mark: Mark) {
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
            List::Xattrs(ino) | List::Parents(ino) => {
                self.item(Phase::Clear, "sr", None, &[&whole(ino)], mark);
            }
            // The contract says that these are not cleared.
            List::Sustained(_) | List::LocksOf(_) => {}
        }
    }

    /// The script's arguments.
    fn finish(mut self) -> (Args, Vec<(usize, usize, Vec<Mark>)>) {
        for (op, key) in std::mem::take(&mut self.typed) {
            if self.checked.insert(key.clone()) {
                self.item(Phase::Check, op, Some(&key), &[], Mark::Step);
            }
        }
        let mut groups = self.groups;
        groups.sort_by_key(|(phase, _)| *phase);
        let mut body = Args::default();
        let mut spans = Vec::with_capacity(groups.len());
        let mut first_write = None;
        for (phase, group) in groups {
            // The first argument of the script stands before the body; Lua counts from 1.
            let position = body.len() + 2;
            if phase > Phase::Check && first_write.is_none() {
                first_write = Some(position);
            }
            body.push(group.op.as_bytes());
            body.push_number(group.args.len() as u64);
            spans.push((position + 2 + group.head, group.stride, group.marks));
            body.append(&group.args);
        }
        let mut args = Args::default();
        args.push_number(first_write.unwrap_or(body.len() + 2) as u64);
        args.append(&body);
        (args, spans)
    }
}

/// What is added to nodes: links, lower bound of the times, place of the first write.
type Bumps = FxHashMap<Ino, (i32, Option<Time>, usize)>;

fn bumps_of(commit: &Commit) -> Bumps {
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

/// The 12 bytes of a time in a node, which sort as the times do.
fn encode_time(time: Time) -> Vec<u8> {
    [&time.sec.to_be_bytes()[..], &time.nsec.to_be_bytes()].concat()
}

/// Which of three operations: the strict one, the one for which a stored 0 is as good as nothing, or the one for
/// which all below is too.
fn lenient(key: &Key, ops: [&'static str; 3]) -> &'static str {
    match key {
        Key::SliceRef(..) => ops[1],
        Key::Parents(..) => ops[2],
        _ => ops[0],
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

/// Whether a stored text says what the record says.
fn spells(stored: &[u8], row: &Row) -> bool {
    match row {
        Row::Setting(format) => {
            sluice_meta::schema::VolumeFormat::parse(stored).is_ok_and(|parsed| parsed == *format)
        }
        Row::Session(_, session) => serde_json::from_slice(stored).ok() == session.info,
        _ => false,
    }
}
