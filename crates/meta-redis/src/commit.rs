//! A commit turned into the arguments of one script, and its answer into keys.
//!
//! Whatever may fail stands among the checks, so that the script's writes cannot: expectations, the
//! preconditions of inserts, deletes and bumps, and the Redis type of every key that is written to.
//! Items of one kind that lie in one Redis key go out as one operation, so that the server does
//! little per record.

mod checks;
mod writes;

use redis::Value;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, Expect, Hold, Write},
    schema::Key,
};

use crate::{
    keys::{Keys, Text, number, signed},
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
    pub(crate) fn new(keys: &Keys, commit: &'c Commit) -> Self {
        let mut builder = Builder {
            keys,
            groups: Vec::new(),
            index: FxHashMap::default(),
            checked: FxHashSet::default(),
            looked: Vec::new(),
            typed: Vec::new(),
            sums: FxHashMap::default(),
            cleared: FxHashSet::default(),
        };
        builder.commit(commit);
        let (args, spans) = builder.finish();
        Self { commit, pipeline: Pipeline::of_script(&COMMIT, args), spans }
    }

    /// What to send.
    pub(crate) fn take_pipeline(&mut self) -> Pipeline {
        std::mem::take(&mut self.pipeline)
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
    groups: Vec<(Phase, Group)>,
    index: FxHashMap<(&'static str, Text), usize>,
    /// Redis keys whose type some check finds out.
    checked: FxHashSet<Text>,
    /// Keys whose values checks look at.
    looked: Vec<Text>,
    /// Redis keys that are written to, with the operation that finds out their type.
    typed: Vec<(&'static str, Text)>,
    /// What is added to numbers in hashes: operation, hash and field.
    sums: FxHashMap<(&'static str, Text, Text), (i64, Mark)>,
    /// Hashes that are cleared before anything is added to them.
    cleared: FxHashSet<Text>,
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
        if matches!(op, "nl" | "ng" | "nb" | "ci") {
            self.looked.extend(args.first().map(|key| Text::from_slice(key)));
        }
        let last = self.index.get(&(op, whose.clone())).copied();
        let full = |at: &usize| self.groups[*at].1.args.len() + args.len() > MOST;
        let at = last.filter(|at| !full(at)).unwrap_or_else(|| {
            let stride = args.len().max(1);
            let mut group = Group { op, args: Args::default(), head: head.len(), stride, marks: Vec::new() };
            group.args.extend(head.iter().copied());
            self.groups.push((phase, group));
            self.index.insert((op, whose), self.groups.len() - 1);
            self.groups.len() - 1
        });
        let group = &mut self.groups[at].1;
        group.args.extend(args.iter().copied());
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
        let mut bumps = writes::bumps_of(commit);
        for (at, write) in commit.writes.iter().enumerate() {
            self.write(write, Mark::Write(at), &held, &mut bumps);
        }
        if let Some(told) = commit.told() {
            let channel = watch::channel(self.keys);
            self.item(Phase::Last, "pb", Some(&channel), &[&told.encode()], Mark::Step);
        }
        self.add_up();
        for (ino, (nlink, time, at)) in bumps {
            let key = self.keys.node(ino);
            let time = time.map(writes::encode_time).unwrap_or_default();
            self.item(Phase::Write, "nb", None, &[&key, &signed(i64::from(nlink)), &time], Mark::Write(at));
        }
    }

    /// The values that checks of nodes and counters look at, fetched together before anything else.
    fn look_up(&mut self) {
        let mut looked = std::mem::take(&mut self.looked);
        looked.sort_unstable();
        looked.dedup();
        for keys in looked.chunks(MOST) {
            let mut args = Args::default();
            args.extend(keys.iter().map(|key| &key[..]));
            let group = Group { op: "mg", args, head: 0, stride: 1, marks: Vec::new() };
            self.groups.insert(0, (Phase::Check, group));
        }
    }

    /// The script's arguments.
    fn finish(mut self) -> (Args, Vec<(usize, usize, Vec<Mark>)>) {
        for (op, key) in std::mem::take(&mut self.typed) {
            if self.checked.insert(key.clone()) {
                self.item(Phase::Check, op, Some(&key), &[], Mark::Step);
            }
        }
        self.look_up();
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
