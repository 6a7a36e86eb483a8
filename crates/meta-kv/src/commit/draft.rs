//! The draft of a commit: which records it needs, and which keys it changes.
//!
//! What must stay true: every key that decides whether the commit may happen is part of the commit.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sluice_meta::{
    engine::{Commit, Condition, EngineError, Expect, Hold, List, Read, Write},
    schema::{Counter, Key, Row},
};

use crate::{
    codec::decode,
    kv::{Change, Changes, Kv, Volume},
    read::{found, want},
    stored::{Raw, Result, Span},
    totals::{Lane, TOTALS, is_spread},
    values::{Values, Wants},
};

/// Computes the changed keys of a commit.
pub(crate) struct Draft<'c> {
    pub(super) volume: &'c Volume,
    commit: &'c Commit,
    /// Whether it adds the lane's pending parts to the volume's totals.
    fold: bool,
    /// Whether it reads the keys of new records, instead of letting the server check them.
    look_first: bool,
    /// Whether the store deletes ranges without a read of their keys.
    clears: bool,
    pub(super) cleared: Vec<Span>,
    /// The changed keys, in order of their first change. The first key is the primary key of the
    /// transaction.
    pub(super) out: IndexMap<Raw, Change, FxBuildHasher>,
    pub(super) broken: Vec<Key>,
}

impl<'c> Draft<'c> {
    pub(crate) fn new<K: Kv>(kv: &'c K, commit: &'c Commit, fold: bool, look_first: bool) -> Self {
        let (volume, clears, cleared) = (kv.volume(), K::CLEARS, Vec::new());
        let (out, broken) = (IndexMap::default(), Vec::new());
        Self { volume, commit, fold, look_first, clears, cleared, out, broken }
    }

    /// The keys and ranges to read.
    pub(crate) fn wants(&self) -> Wants {
        let keys = &self.volume.keys;
        let mut wants = Wants::default();
        if let Some(step) = self.commit.step {
            wants.record(keys, &Key::Writer(step.writer, step.lane));
            if self.fold {
                wants.list(keys, List::Lanes(step.writer));
                wants.counters(keys, &TOTALS);
            }
        }
        for condition in self.expectations() {
            want(keys, &condition.read, &mut wants);
            if let Read::Names { .. } = condition.read {
                // The node of the directory is held.
                wants.record(keys, &condition.key);
            }
        }
        self.commit.writes.iter().for_each(|write| self.wants_of(write, &mut wants));
        wants
    }

    fn wants_of(&self, write: &Write, wants: &mut Wants) {
        let keys = &self.volume.keys;
        match write {
            Write::Insert(row) if self.look_first => wants.record(keys, &row.key()),
            Write::Insert(row) | Write::Put(row) => match row {
                // The new value depends on the stored one.
                Row::Flock(..) | Row::Plock(..) | Row::Xattr(..) | Row::Writer(..) | Row::Counter(..) => {
                    wants.record(keys, &row.key());
                }
                _ => {}
            },
            Write::Delete(key) | Write::Discard(key) => {
                wants.record(keys, key);
                if let Key::Writer(..) = key {
                    wants.counters(keys, &TOTALS);
                }
            }
            Write::Clear(list) if self.is_emptied(*list) => {}
            Write::Clear(list) => {
                wants.list(keys, *list);
                if let List::Lanes(_) = list {
                    wants.counters(keys, &TOTALS);
                }
            }
            Write::Count(counter, _) if self.is_in_writer_record(*counter) => {}
            Write::Count(counter, _) => wants.counters(keys, &[*counter]),
            _ => write.base().iter().for_each(|key| wants.record(keys, key)),
        }
    }

    /// Whether additions to a counter are kept in the writer record.
    pub(super) fn is_in_writer_record(&self, counter: Counter) -> bool {
        is_spread(counter) && self.commit.step.is_some()
    }

    /// Whether a collection is deleted as ranges, without a read of its keys.
    pub(super) fn is_emptied(&self, list: List) -> bool {
        self.clears
            && matches!(list, List::Xattrs(_) | List::Parents(_) | List::Chunks(..) | List::Changes(_))
    }

    /// Whether a key is in a range that this commit deletes.
    fn goes(&self, key: &[u8]) -> bool {
        self.cleared.iter().any(|span| span.contains(key))
    }

    fn expectations(&self) -> impl Iterator<Item = Condition<'c>> + use<'c> {
        let commit = self.commit;
        commit.expects.iter().filter_map(move |expect| Condition::of(expect, commit))
    }

    /// The keys that change, from the values that were read; a conflict if an expectation does not
    /// hold.
    pub(crate) fn changes(mut self, values: &Values) -> Result<Changes> {
        for condition in self.expectations() {
            if !condition.holds(&found(self.volume, values, &condition.read)?) {
                self.broken.push(condition.key);
            }
        }
        // Directories first, because the next commit reads them, and the first key is unlocked as
        // soon as this commit is answered.
        let (bumps, others): (Vec<_>, Vec<_>) =
            self.commit.writes.iter().partition(|write| matches!(write, Write::Bump { .. }));
        for write in bumps.into_iter().chain(others) {
            self.apply(values, write)?;
        }
        self.step(values)?;
        self.hold(values);
        if !self.broken.is_empty() {
            return Err(EngineError::Conflict(self.broken));
        }
        let empty_dirs = self.commit.expects.iter().filter_map(|expect| match expect {
            Expect::Empty(dir) => Some(self.volume.keys.entries(*dir)),
            _ => None,
        });
        let (keys, spans) = (self.out.into_iter().collect(), empty_dirs.collect());
        let line = |write: &Write| if let Write::Log(line) = write { Some(line.clone()) } else { None };
        let lines = self.commit.writes.iter().filter_map(line).collect();
        Ok(Changes { keys, cleared: self.cleared, spans, notice: self.commit.notice(), lines })
    }

    /// Adds the keys that must stay the same and are not written otherwise.
    fn hold(&mut self, values: &Values) {
        let keys = &self.volume.keys;
        for expect in &self.commit.expects {
            let key = expect.key();
            match expect {
                Expect::Row(_, Hold::None) => continue,
                Expect::Same(list, _) => {
                    keys.locks(*list).iter().for_each(|key| self.hold_key(key, values.get(key)));
                }
                _ => keys.of(&key).for_each(|key| self.hold_key(&key, values.get(&key))),
            }
            if let Key::Counter(counter) = key
                && is_spread(counter)
            {
                for (key, value) in values.rows(&keys.writers()) {
                    self.hold_key(key, Some(value));
                }
            }
        }
    }

    fn hold_key(&mut self, key: &Raw, now: Option<&[u8]>) {
        if !self.out.contains_key(key) {
            let hold = || Change::Hold(now.map(<[u8]>::to_vec));
            let change = if self.goes(key) { Change::Delete } else { hold() };
            self.set(key.clone(), change);
        }
    }

    pub(super) fn set(&mut self, key: Raw, change: Change) {
        self.out.insert(key, change);
    }

    /// The value of a key, after the changes so far.
    pub(super) fn now<'v>(&'v self, values: &'v Values, key: &[u8]) -> Option<&'v [u8]> {
        match self.out.get(key) {
            Some(Change::Put(value) | Change::Insert(value)) => Some(value),
            Some(Change::Delete) => None,
            Some(Change::Hold(now)) => now.as_deref(),
            None if self.goes(key) => None,
            None => values.get(key),
        }
    }

    /// The record of a key, after the changes so far.
    pub(super) fn record(&self, values: &Values, key: &Key) -> Result<Option<Row>> {
        let (first, second) = (self.volume.keys.raw(key), self.volume.keys.second(key));
        let second = second.as_deref().and_then(|second| self.now(values, second));
        decode(key, self.now(values, &first), second).map_err(|damage| self.volume.damaged(&first, damage))
    }

    /// The writer record of a key, after the changes so far.
    pub(super) fn lane(&self, values: &Values, key: &[u8]) -> Result<Option<Lane>> {
        let lane = self.now(values, key).map(Lane::decode).transpose();
        lane.map_err(|damage| self.volume.damaged(key, damage))
    }

    /// Raises the number in the writer record, with the additions to the totals.
    fn step(&mut self, values: &Values) -> Result<()> {
        let Some(step) = self.commit.step else { return Ok(()) };
        let own = Key::Writer(step.writer, step.lane);
        let key = self.volume.keys.raw(&own);
        let Some(mut lane) = self.lane(values, &key)?.filter(|lane| lane.n == step.from) else {
            self.broken.push(own);
            return Ok(());
        };
        lane.n = step.to;
        for write in &self.commit.writes {
            if let Write::Count(counter, by) = write {
                lane.add(*counter, *by);
            }
        }
        self.set(key.clone(), Change::Put(lane.encode()));
        if self.fold {
            for (sibling, stored) in values.lanes(self.volume, &self.volume.keys.lanes(step.writer))? {
                let lane = if sibling == key { lane } else { stored };
                if lane.parts != [0; 2] {
                    self.fold_into_totals(values, lane)?;
                    self.set(sibling, Change::Put(Lane { n: lane.n, ..Lane::default() }.encode()));
                }
            }
        }
        Ok(())
    }
}
