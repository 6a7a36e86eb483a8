//! Encodes a commit as the arguments of one script, and decodes its answer to keys.
//!
//! The script's writes cannot fail, because all conditions are checked first: expectations, the
//! preconditions of inserts, deletes and bumps, and the Redis type of every key that is written to.
//! Items of one kind in one Redis key are sent as one operation, so that the server does little for
//! each record.

mod arguments;
mod checks;
mod writes;

use redis::Value;
use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, Expect, Hold, Write},
    schema::Key,
};

use self::arguments::{Action, Builder, Mark, Phase};
use crate::{
    keys::{Keys, number},
    pipeline::Pipeline,
    script::COMMIT,
    watch,
};

/// The meaning of positions in the script's arguments.
pub(crate) struct Plan<'c> {
    commit: &'c Commit,
    /// For each operation: position of its first item, number of arguments of an item, meaning of
    /// the items.
    spans: Vec<(usize, usize, Vec<Mark>)>,
}

impl<'c> Plan<'c> {
    /// Plans a commit. Returns what to send for it.
    pub(crate) fn new(keys: &Keys, commit: &'c Commit) -> (Self, Pipeline) {
        let mut builder = Builder::new(keys);
        builder.commit(commit);
        let (args, spans) = builder.finish();
        (Self { commit, spans }, Pipeline::of_script(&COMMIT, args))
    }

    /// The keys that failed their checks; empty if the commit happened. `None` if it is no answer
    /// of the script.
    pub(crate) fn failed(&self, answer: Value) -> Option<Vec<Key>> {
        let failed: Vec<usize> = redis::from_redis_value(answer).ok()?;
        let mut keys =
            failed.into_iter().map(|position| self.key_at(position)).collect::<Option<Vec<_>>>()?;
        keys.sort_unstable();
        keys.dedup();
        Some(keys)
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

impl Builder<'_> {
    fn commit(&mut self, commit: &Commit) {
        if let Some(step) = commit.step {
            let key = Key::Writer(step.writer, step.lane);
            let cell = &self.keys.cells(&key)[0];
            self.cell(Action::Equal, cell, Some(&number(step.from)), Mark::Step);
            self.cell(Action::Set, cell, Some(&number(step.to)), Mark::Step);
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
                // An insert checks this itself.
                Expect::Absent(key) if inserted.contains(key) => {}
                Expect::Absent(key) => {
                    self.cell(Action::Absent, &self.keys.cells(key)[0], None, Mark::Expect(at));
                }
                Expect::QuotaAllows(key, space, inodes) => {
                    self.room(&Key::Quota(*key), [*space, *inodes], Mark::Expect(at));
                }
                Expect::Same(list, rows) => self.same(*list, rows, Mark::Expect(at)),
                Expect::Empty(dir) => {
                    let going = commit
                        .writes
                        .iter()
                        .filter(|write| matches!(write, Write::Delete(Key::Entry(of, _)) if of == dir))
                        .count();
                    self.has_fields(&self.keys.dir(*dir), going, Mark::Expect(at));
                }
            }
        }
        let mut bumps = writes::bumps_of(commit);
        for (at, write) in commit.writes.iter().enumerate() {
            self.write(write, Mark::Write(at), &held, &mut bumps);
        }
        if let Some(notice) = commit.notice() {
            let channel = watch::channel(self.keys);
            self.item(Phase::Last, *b"pb", &[&channel], &[&notice.encode()], Mark::Step);
        }
        self.lines(commit);
        self.add_up();
        for (ino, (nlink, time, at)) in bumps {
            let key = self.keys.node(ino);
            let time = time.map(writes::encode_time).unwrap_or_default();
            let args: [&[u8]; 3] = [&key, &number(nlink), &time];
            self.item(Phase::Write, *b"nb", &[], &args, Mark::Write(at));
        }
    }
}
