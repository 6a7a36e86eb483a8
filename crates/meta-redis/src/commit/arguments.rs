//! The arguments of the script: operations with their items, in the order of their phases.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    codec::{Cell, Shape},
    keys::{Keys, Text},
    pipeline::Args,
};

/// The name of an operation of the script.
pub(super) type Op = [u8; 2];

/// What an operation does with a cell. The letter is the second letter of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Action {
    /// Checks that it holds a value.
    Equal = b'e',
    /// Checks that there is none.
    Absent = b'a',
    /// Checks that there is none, and writes one.
    Insert = b'i',
    /// Checks that there is one, and removes it.
    Delete = b'd',
    /// Writes a value.
    Set = b's',
    /// Removes what there is.
    Remove = b'r',
    /// Adds to a number.
    Add = b'n',
}

/// The operation that does that.
pub(super) fn op(shape: Shape, action: Action) -> Op {
    use Action::{Absent, Add, Delete, Equal, Insert, Remove};
    let letter = match (shape, action) {
        (Shape::List, Absent | Delete | Remove) => Shape::Text,
        (Shape::Counter, action) if !matches!(action, Equal | Add) => Shape::Text,
        (Shape::Number | Shape::Links, action) if !matches!(action, Absent | Insert | Add) => Shape::Field,
        (shape, _) => shape,
    };
    [letter as u8, action as u8]
}

/// Most arguments of one operation, because the script cannot unpack more than 8000.
const MAX_ARGUMENTS: usize = 4000;

/// What failed if an item of an operation fails.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Step,
    Expect(usize),
    Write(usize),
}

/// One operation of the script.
pub(super) struct Group {
    op: Op,
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
    /// Removals of whole keys, before anything is written to them.
    Clear,
    Write,
    /// Checks of the result, and messages.
    Last,
}

pub(super) struct Builder<'b> {
    pub(super) keys: &'b Keys,
    groups: Vec<(Phase, Group)>,
    index: FxHashMap<(Op, Text), usize>,
    /// Redis keys whose type a check verifies already.
    pub(super) checked: FxHashSet<Text>,
    /// Keys whose values are needed by checks.
    looked: Vec<Text>,
    /// Redis keys that are written to, with the operation that verifies their type.
    typed: Vec<(Op, Text)>,
    /// What is added to numbers in hashes.
    pub(super) sums: FxHashMap<Cell, (i64, Mark)>,
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

    /// Adds an action on a cell, with a value if the action takes one.
    pub(super) fn cell(&mut self, action: Action, cell: &Cell, value: Option<&[u8]>, mark: Mark) {
        let phase = match action {
            Action::Equal | Action::Absent => Phase::Check,
            Action::Delete | Action::Remove if cell.shape.is_whole() => Phase::Clear,
            _ => Phase::Write,
        };
        let op = op(cell.shape, action);
        if cell.shape.is_whole() {
            let args: [&[u8]; 2] = [&cell.key, value.unwrap_or_default()];
            return self.item(phase, op, &[], &args[..=usize::from(value.is_some())], mark);
        }
        if matches!(action, Action::Set | Action::Remove) {
            // The first letter is that of a hash, a set or a sorted set.
            self.typed.push(([op[0], b'c'], cell.key.clone()));
        } else {
            self.checked.insert(cell.key.clone());
        }
        let (head, field): ([&[u8]; 1], &[u8]) = ([&cell.key], &cell.field);
        match value {
            Some(score) if cell.shape == Shape::Score => self.item(phase, op, &head, &[score, field], mark),
            Some(value) if cell.shape.is_field() => self.item(phase, op, &head, &[field, value], mark),
            _ => self.item(phase, op, &head, &[field], mark),
        }
    }

    /// Adds an item to the operation `op` whose arguments begin with `head`. The first argument of
    /// `head` distinguishes operations of that name.
    pub(super) fn item(&mut self, phase: Phase, op: Op, head: &[&[u8]], args: &[&[u8]], mark: Mark) {
        if matches!(&op, b"nl" | b"ng" | b"nb" | b"cn") {
            self.looked.extend(args.first().map(|key| Text::from_slice(key)));
        }
        let whose = (op, head.first().map(|key| Text::from_slice(key)).unwrap_or_default());
        let last = self.index.get(&whose).copied();
        let full = |at: &usize| self.groups[*at].1.args.len() + args.len() > MAX_ARGUMENTS;
        let at = last.filter(|at| !full(at)).unwrap_or_else(|| {
            let stride = args.len().max(1);
            let mut group = Group { op, args: Args::default(), head: head.len(), stride, marks: Vec::new() };
            group.args.extend(head.iter().copied());
            self.groups.push((phase, group));
            self.index.insert(whose, self.groups.len() - 1);
            self.groups.len() - 1
        });
        let group = &mut self.groups[at].1;
        group.args.extend(args.iter().copied());
        group.marks.push(mark);
    }

    /// Fetches the values for checks of nodes and counters together, before anything else.
    fn look_up(&mut self) {
        let mut looked = std::mem::take(&mut self.looked);
        looked.sort_unstable();
        looked.dedup();
        for keys in looked.chunks(MAX_ARGUMENTS) {
            let mut args = Args::default();
            args.extend(keys.iter().map(|key| &key[..]));
            let group = Group { op: *b"mg", args, head: 0, stride: 1, marks: Vec::new() };
            self.groups.insert(0, (Phase::Check, group));
        }
    }

    /// The script's arguments.
    pub(super) fn finish(mut self) -> (Args, Vec<(usize, usize, Vec<Mark>)>) {
        for (op, key) in std::mem::take(&mut self.typed) {
            if self.checked.insert(key.clone()) {
                self.item(Phase::Check, op, &[&key], &[], Mark::Step);
            }
        }
        self.look_up();
        let mut groups = self.groups;
        groups.sort_by_key(|(phase, _)| *phase);
        let mut body = Args::default();
        let mut spans = Vec::with_capacity(groups.len());
        let mut first_write = None;
        for (phase, group) in groups {
            // The first argument of the script is before the body, and Lua counts from 1.
            let position = body.len() + 2;
            if phase > Phase::Check && first_write.is_none() {
                first_write = Some(position);
            }
            body.push(&group.op);
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
