//! The conditions of a commit. Each has the read that shows whether the condition holds.
//!
//! What must stay true: an engine that finds that all of them hold may commit.

use rustc_hash::FxHashSet;

use super::{Commit, Expect, Found, Hold, Read, Write, quota_allows, still_holds};
use crate::schema::{Key, Row};

/// One condition of a commit.
#[derive(Clone, Debug)]
pub struct Condition<'c> {
    /// The record to name in a conflict.
    pub key: Key,
    /// What to ask.
    pub read: Read,
    /// What the answer must be.
    pub wanted: Wanted<'c>,
}

/// What an answer must be.
#[derive(Clone, Debug)]
pub enum Wanted<'c> {
    /// This record, to the degree of the hold.
    Row(&'c Row, Hold),
    /// The record of a lane with this number.
    Number(u64),
    /// No record.
    Absent,
    /// Any record. Only for what a write needs.
    Present,
    /// No names but these.
    Names(FxHashSet<&'c [u8]>),
    /// A quota with room for so many bytes and inodes, or none.
    QuotaAllows(i64, i64),
    /// These records, in any order.
    Same(&'c [Row]),
}

impl<'c> Condition<'c> {
    /// That of an expectation of `commit`, if it is one at all.
    pub fn of(expect: &'c Expect, commit: &'c Commit) -> Option<Self> {
        let key = expect.key();
        let (read, wanted) = match expect {
            Expect::Row(_, Hold::None) => return None,
            Expect::Row(row, hold) => (Read::Get(key.clone()), Wanted::Row(row, *hold)),
            Expect::Absent(_) => (Read::Get(key.clone()), Wanted::Absent),
            Expect::QuotaAllows(_, space, inodes) => {
                (Read::Get(key.clone()), Wanted::QuotaAllows(*space, *inodes))
            }
            Expect::Same(list, rows) => (Read::All(*list), Wanted::Same(rows)),
            Expect::Empty(dir) => {
                let leaving = commit.writes.iter().filter_map(|write| match write {
                    Write::Delete(Key::Entry(of, name)) if of == dir => Some(&name[..]),
                    _ => None,
                });
                let leaving: FxHashSet<&[u8]> = leaving.collect();
                (Read::Names { dir: *dir, limit: leaving.len() + 1 }, Wanted::Names(leaving))
            }
        };
        Some(Self { key, read, wanted })
    }

    fn of_record(key: Key, wanted: Wanted<'c>) -> Self {
        Self { read: Read::Get(key.clone()), key, wanted }
    }

    /// Whether it holds, if this is the answer.
    pub fn holds(&self, found: &Found) -> bool {
        match (&self.wanted, found) {
            (Wanted::Row(then, hold), Found::Row(Some(now))) => still_holds(*hold, then, now),
            (Wanted::Number(from), Found::Row(Some(Row::Writer(_, _, n)))) => n == from,
            (Wanted::Absent, Found::Row(now)) => now.is_none(),
            (Wanted::Present, Found::Row(now)) => now.is_some(),
            (Wanted::QuotaAllows(space, inodes), Found::Row(now)) => {
                quota_allows(now.as_ref(), *space, *inodes)
            }
            (Wanted::Names(leaving), Found::Names(names)) => {
                names.iter().all(|name| leaving.contains(&name[..]))
            }
            (Wanted::Same(then), Found::Rows(now)) => {
                now.len() == then.len() && now.iter().all(|row| then.contains(row))
            }
            _ => false,
        }
    }
}

impl Commit {
    /// All conditions: of the step, of the expectations, and of writes.
    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let step = self
            .step
            .map(|step| Condition::of_record(Key::Writer(step.writer, step.lane), Wanted::Number(step.from)));
        let expects = self.expects.iter().filter_map(|expect| Condition::of(expect, self));
        let writes = self.writes.iter().filter_map(|write| match write {
            Write::Insert(row) => Some(Condition::of_record(row.key(), Wanted::Absent)),
            Write::Delete(key) => Some(Condition::of_record(key.clone(), Wanted::Present)),
            Write::Bump { ino, .. } => Some(Condition::of_record(Key::Node(*ino), Wanted::Present)),
            _ => None,
        });
        step.into_iter().chain(expects).chain(writes)
    }
}
