//! The arguments of the script: operations with their items, in the order of their phases.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    keys::{Keys, Text},
    pipeline::Args,
};

/// Most arguments of one operation: the script cannot unpack more than 8000.
const MOST: usize = 4000;

/// What an item of an operation stands for, should it fail.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Step,
    Expect(usize),
    Write(usize),
}

/// One operation of the script.
pub(super) struct Group {
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
pub(super) enum Phase {
    /// Only checks.
    Check,
    /// Removals of whole keys, before anything is made anew.
    Clear,
    Write,
    /// What looks at the result, and messages.
    Last,
}

pub(super) struct Builder<'b> {
    pub(super) keys: &'b Keys,
    groups: Vec<(Phase, Group)>,
    index: FxHashMap<(&'static str, Text), usize>,
    /// Redis keys whose type some check finds out.
    pub(super) checked: FxHashSet<Text>,
    /// Keys whose values checks look at.
    pub(super) looked: Vec<Text>,
    /// Redis keys that are written to, with the operation that finds out their type.
    pub(super) typed: Vec<(&'static str, Text)>,
    /// What is added to numbers in hashes: operation, hash and field.
    pub(super) sums: FxHashMap<(&'static str, Text, Text), (i64, Mark)>,
    /// Hashes that are cleared before anything is added to them.
    pub(super) cleared: FxHashSet<Text>,
}

impl<'b> Builder<'b> {
    pub(super) fn new(keys: &'b Keys) -> Self {
        Self {
            keys,
            groups: Vec::new(),
            index: FxHashMap::default(),
            checked: FxHashSet::default(),
            looked: Vec::new(),
            typed: Vec::new(),
            sums: FxHashMap::default(),
            cleared: FxHashSet::default(),
        }
    }

    /// Adds an item to the operation `op` on `key`.
    pub(super) fn item(
        &mut self,
        phase: Phase,
        op: &'static str,
        key: Option<&Text>,
        args: &[&[u8]],
        mark: Mark,
    ) {
        let head: &[&[u8]] = match key {
            Some(key) => &[key],
            None => &[],
        };
        let whose = key.cloned().unwrap_or_default();
        self.item_under(phase, op, whose, head, args, mark);
    }

    pub(super) fn item_under(
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
    pub(super) fn finish(mut self) -> (Args, Vec<(usize, usize, Vec<Mark>)>) {
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
