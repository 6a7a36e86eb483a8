//! Questions that are asked side by side, as commands in the order in which their answers are taken.

use rustc_hash::FxHashMap;
use sluice_meta::engine::List;
use sluice_types::{Ino, Name};

use crate::{
    codec::Cell,
    keys::{Keys, Text, number},
    pipeline::{Args, Pipeline},
    script::{FOLLOW, READ},
};

/// Most chunks that one call of the script looks at, so that it does not hold the server for long.
pub(super) const CHUNKS: u32 = 4096;

/// Most fields or keys of one command: the scripts cannot take more than 8000.
pub(super) const FIELDS: usize = 3000;

/// Fewer hashes than these are asked for one by one.
const FEW: usize = 4;

/// One call of the script for ranges of chunks.
#[derive(Default)]
pub(super) struct Ranges {
    args: Args,
    /// How many chunks it looks at.
    chunks: u32,
    /// Whose they are.
    pub(super) whose: Vec<usize>,
}

/// Questions that are asked side by side.
#[derive(Default)]
pub(super) struct Round<'r> {
    pub(super) strings: Vec<(usize, Text)>,
    pub(super) hashes: FxHashMap<Text, Vec<(usize, Text)>>,
    pub(super) singles: Vec<(usize, Cell)>,
    pub(super) follows: FxHashMap<Ino, Vec<(usize, &'r Name)>>,
    scripted: Args,
    /// Whose answer each part of the script's is.
    pub(super) answers: Vec<usize>,
    /// The reads that are followed, in the order of their answers.
    pub(super) followed: Vec<usize>,
    /// Calls of the script for ranges of chunks.
    pub(super) ranges: Vec<Ranges>,
    natives: Pipeline,
    pub(super) native_for: Vec<usize>,
    /// Extended attributes asked for.
    pub(super) xattrs: Vec<(usize, Text)>,
    /// The cells that each list of values fills.
    pub(super) targets: Vec<Vec<usize>>,
}

impl Round<'_> {
    pub(super) fn get(&mut self, at: usize, cell: Cell) {
        match cell {
            Cell::Str(key) => self.strings.push((at, key)),
            Cell::Field(hash, field) => self.hashes.entry(hash).or_default().push((at, field)),
            other => self.singles.push((at, other)),
        }
    }

    /// Adds a question to the script.
    pub(super) fn ask(&mut self, at: usize, op: &str, args: &[&[u8]]) {
        self.scripted.push(op.as_bytes());
        self.scripted.push_number(args.len() as u64);
        self.scripted.extend(args.iter().copied());
        self.answers.push(at);
    }

    pub(super) fn list(&mut self, keys: &Keys, at: usize, list: List) {
        let (command, key) = match list {
            List::Xattrs(ino) => return self.xattrs.push((at, keys.xattrs(ino))),
            List::Parents(ino) => ("HGETALL", keys.parents(ino)),
            List::Flocks(ino) => ("HGETALL", keys.flocks(ino)),
            List::Plocks(ino) => ("HGETALL", keys.plocks(ino)),
            List::Lanes(_) => ("HGETALL", keys.writers()),
            List::Changes(writer) => ("HGETALL", keys.news(writer)),
            List::Sustained(sid) => ("SMEMBERS", keys.sustained(sid)),
            List::LocksOf(sid) => {
                let mut session = number(sid);
                session.push(b'_');
                return self.ask(at, "l", &[&keys.locked(sid), &session]);
            }
            List::Chunks(ino, from, to) => {
                let mut start = from;
                while start < to {
                    let end = to.min(start.saturating_add(CHUNKS));
                    let bounds = [number(u64::from(start)), number(u64::from(end))];
                    if self.ranges.last().is_none_or(|last| last.chunks + (end - start) > CHUNKS) {
                        self.ranges.push(Ranges::default());
                    }
                    if let Some(ranges) = self.ranges.last_mut() {
                        ranges.args.extend([&b"c"[..], b"3", &keys.chunks(ino), &bounds[0], &bounds[1]]);
                        ranges.chunks += end - start;
                        ranges.whose.push(at);
                    }
                    start = end;
                }
                return;
            }
        };
        self.natives.command(command).push(&key);
        self.native_for.push(at);
    }

    /// Adds its commands.
    pub(super) fn put_into(&mut self, pipeline: &mut Pipeline, keys: &Keys) {
        let mut follows = Args::default();
        follows.push(&keys.word("i"));
        for (dir, names) in &self.follows {
            for names in names.chunks(FIELDS) {
                follows.push_number(names.len() as u64);
                follows.push(&keys.dir(*dir));
                follows.extend(names.iter().map(|(_, name)| &name[..]));
                self.followed.extend(names.iter().map(|(at, _)| *at));
            }
        }
        // A script rules out all that are not there at once; for a few it is not worth its while.
        if self.xattrs.len() < FEW {
            for (at, key) in std::mem::take(&mut self.xattrs) {
                self.natives.command("HGETALL").push(&key);
                self.native_for.push(at);
            }
        }
        pipeline.append(std::mem::take(&mut self.natives));
        for strings in self.strings.chunks(FIELDS) {
            let command = pipeline.command("MGET");
            command.extend(strings.iter().map(|(_, key)| &key[..]));
            self.targets.push(strings.iter().map(|(at, _)| *at).collect());
        }
        for (hash, fields) in &self.hashes {
            for fields in fields.chunks(FIELDS) {
                let command = pipeline.command("HMGET");
                command.push(hash);
                command.extend(fields.iter().map(|(_, field)| &field[..]));
                self.targets.push(fields.iter().map(|(at, _)| *at).collect());
            }
        }
        for (_, cell) in &self.singles {
            single(pipeline, cell);
        }
        for ranges in &mut self.ranges {
            pipeline.script(&READ, std::mem::take(&mut ranges.args));
        }
        for hashes in self.xattrs.chunks(FIELDS) {
            let mut args = Args::default();
            args.push(b"x");
            args.push_number(hashes.len() as u64);
            args.extend(hashes.iter().map(|(_, key)| &key[..]));
            pipeline.script(&READ, args);
        }
        if !self.followed.is_empty() {
            pipeline.script(&FOLLOW, follows);
        }
        if !self.answers.is_empty() {
            pipeline.script(&READ, std::mem::take(&mut self.scripted));
        }
    }
}

fn single(pipeline: &mut Pipeline, cell: &Cell) {
    let (command, args): (_, &[&[u8]]) = match cell {
        Cell::Str(key) => ("GET", &[key]),
        Cell::Field(key, field) => ("HGET", &[key, field]),
        Cell::Score(key, member) => ("ZSCORE", &[key, member]),
        Cell::Member(key, member) => ("SISMEMBER", &[key, member]),
        Cell::List(key) => ("LRANGE", &[key, b"0", b"-1"]),
    };
    pipeline.command(command).extend(args.iter().copied());
}
