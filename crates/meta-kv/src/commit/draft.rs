//! What a commit needs to know, and what it makes of it.
//!
//! What must stay true: every key that decides whether the commit may happen is among those it
//! names.

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Write, still_holds},
    schema::{Counter, Key, Row},
};
use sluice_types::Ino;

use crate::{
    codec::decode,
    keys::Cells,
    kv::{Change, Changes, Kv, Volume},
    stored::{Raw, Span},
    totals::{Lane, is_spread},
    values::{Values, Wants, spans},
};

/// Whether a commit adds what its process has not yet added to the volume's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Now,
    Later,
}

/// A commit on its way to a list of changed keys.
pub(crate) struct Draft<'c> {
    pub(super) volume: &'c Volume,
    commit: &'c Commit,
    fold: Fold,
    /// Whether new records are looked for rather than left to the server to refuse.
    look_first: bool,
    /// Whether ranges are emptied without a look at what is in them.
    clears: bool,
    pub(super) cleared: Vec<Span>,
    /// In the order in which they came up: the first is the key by whose lock the commit lives or
    /// dies.
    order: Vec<Raw>,
    pub(super) out: FxHashMap<Raw, Change>,
    pub(super) broken: Vec<Key>,
}

impl<'c> Draft<'c> {
    pub(crate) fn new<K: Kv>(kv: &'c K, commit: &'c Commit, fold: Fold, look_first: bool) -> Self {
        let (order, out) = (Vec::new(), FxHashMap::default());
        let (volume, clears, cleared) = (kv.volume(), K::CLEARS, Vec::new());
        Self { volume, commit, fold, look_first, clears, cleared, order, out, broken: Vec::new() }
    }

    /// What must be known.
    pub(crate) fn wants(&self) -> Wants {
        let (volume, keys) = (self.volume, &self.volume.keys);
        let mut wants = Wants::default();
        if let Some(step) = self.commit.step {
            wants.record(volume, &Key::Writer(step.writer, step.lane));
            if self.fold == Fold::Now {
                wants.span(keys.lanes(step.writer), usize::MAX, true);
                wants.key(keys.counter(Counter::UsedSpace));
                wants.key(keys.counter(Counter::TotalInodes));
            }
        }
        for expect in &self.commit.expects {
            match expect {
                Expect::Row(_, Hold::None) => {}
                Expect::Row(row, _) => wants.record(volume, &row.key()),
                Expect::Absent(key) => wants.record(volume, key),
                Expect::Vacant(dir) => {
                    wants.key(keys.node(*dir));
                    wants.span(keys.entries(*dir), self.removed_from(*dir).count() + 1, false);
                }
                Expect::Same(list, _) => wants.list(volume, *list),
            }
        }
        self.commit.writes.iter().for_each(|write| self.wants_of(write, &mut wants));
        wants
    }

    fn wants_of(&self, write: &Write, wants: &mut Wants) {
        let (volume, keys) = (self.volume, &self.volume.keys);
        match write {
            Write::Insert(row) if self.look_first => wants.record(volume, &row.key()),
            Write::Insert(row) | Write::Put(row) => match row {
                // What is written depends on what is there.
                Row::Flock(..) | Row::Plock(..) | Row::Xattr(..) | Row::Writer(..) | Row::Counter(..) => {
                    wants.record(volume, &row.key());
                }
                _ => {}
            },
            Write::Delete(key) | Write::Discard(key) => {
                wants.record(volume, key);
                if let Key::Writer(..) = key {
                    wants.key(keys.counter(Counter::UsedSpace));
                    wants.key(keys.counter(Counter::TotalInodes));
                }
            }
            Write::Clear(list) if self.is_emptied(*list) => {}
            Write::Clear(list) => {
                wants.list(volume, *list);
                if let List::Lanes(_) = list {
                    wants.key(keys.counter(Counter::UsedSpace));
                    wants.key(keys.counter(Counter::TotalInodes));
                }
            }
            Write::Count(counter, _) => {
                if !self.rides(*counter) {
                    wants.key(keys.counter(*counter));
                }
            }
            Write::Bump { ino, .. } => wants.key(keys.node(*ino)),
            Write::Refer(id, size, _) => wants.record(volume, &Key::SliceRef(*id, *size)),
            Write::Link(ino, parent, _) => wants.record(volume, &Key::Parents(*ino, *parent)),
            Write::Use(ino, _) => wants.record(volume, &Key::DirStat(*ino)),
            Write::Charge(key, ..) => wants.record(volume, &Key::Quota(*key)),
            Write::Append(ino, index, _) => wants.record(volume, &Key::Chunk(*ino, *index)),
            Write::Notify(_) => {}
        }
    }

    /// Whether what is added to a counter rides in the writer record.
    pub(super) fn rides(&self, counter: Counter) -> bool {
        is_spread(counter) && self.commit.step.is_some()
    }

    /// Whether a collection is removed as ranges, whatever is in it.
    pub(super) fn is_emptied(&self, list: List) -> bool {
        self.clears
            && matches!(list, List::Xattrs(_) | List::Parents(_) | List::Chunks(..) | List::Changes(_))
    }

    /// Whether a key is in a range that this commit empties.
    fn goes(&self, key: &[u8]) -> bool {
        self.cleared.iter().any(|span| span.contains(key))
    }

    fn removed_from(&self, dir: Ino) -> impl Iterator<Item = Raw> {
        self.commit.writes.iter().filter_map(move |write| match write {
            Write::Delete(Key::Entry(of, name)) if *of == dir => Some(self.volume.keys.entry(dir, name)),
            _ => None,
        })
    }

    /// The keys that change, by what was read; a conflict if something does not hold.
    pub(crate) fn changes(&mut self, values: &Values) -> Result<Changes, EngineError> {
        self.check(values)?;
        // Directories first: the next commit reads them, and the first key is free as soon as this
        // one is answered.
        let (bumps, others): (Vec<_>, Vec<_>) =
            self.commit.writes.iter().partition(|write| matches!(write, Write::Bump { .. }));
        let (clears, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|write| matches!(write, Write::Clear(_)));
        self.clear(values, &clears)?;
        for write in bumps.into_iter().chain(others) {
            self.apply(values, write)?;
        }
        self.step(values)?;
        self.hold(values);
        if !self.broken.is_empty() {
            return Err(EngineError::Conflict(std::mem::take(&mut self.broken)));
        }
        let mut out = std::mem::take(&mut self.out);
        let keys = self.order.drain(..).filter_map(|key| out.remove_entry(&key)).collect();
        let vacant = self.commit.expects.iter().filter_map(|expect| match expect {
            Expect::Vacant(dir) => Some(self.volume.keys.entries(*dir)),
            _ => None,
        });
        let cleared = std::mem::take(&mut self.cleared);
        Ok(Changes { keys, cleared, spans: vacant.collect(), notice: self.commit.notice() })
    }

    /// What must hold.
    fn check(&mut self, values: &Values) -> Result<(), EngineError> {
        for expect in &self.commit.expects {
            let holds = match expect {
                Expect::Row(_, Hold::None) => true,
                Expect::Row(row, hold) => {
                    let now = values.record(self.volume, &row.key())?;
                    now.is_some_and(|now| still_holds(*hold, row, &now))
                }
                Expect::Absent(key) => values.record(self.volume, key)?.is_none(),
                Expect::Vacant(dir) => {
                    let removed: Vec<Raw> = self.removed_from(*dir).collect();
                    values.rows(&self.volume.keys.entries(*dir)).iter().all(|(key, _)| removed.contains(key))
                }
                Expect::Same(list, then) => {
                    let now = values.list(self.volume, *list)?;
                    now.len() == then.len() && now.iter().all(|row| then.contains(row))
                }
            };
            if !holds {
                self.broken.push(expect.key());
            }
        }
        Ok(())
    }

    /// Names what must hold and is not written otherwise.
    fn hold(&mut self, values: &Values) {
        for expect in &self.commit.expects {
            let keys = match expect {
                Expect::Row(_, Hold::None) => continue,
                Expect::Row(row, _) => self.cells_held(values, &row.key()),
                Expect::Absent(key) => self.cells_held(values, key),
                Expect::Vacant(dir) => vec![self.volume.keys.node(*dir)],
                Expect::Same(List::Flocks(ino), _) => vec![self.volume.keys.flocks(*ino)],
                Expect::Same(List::Plocks(ino), _) => vec![self.volume.keys.plocks(*ino)],
                Expect::Same(list, _) => spans(self.volume, *list)
                    .iter()
                    .flat_map(|span| values.rows(span).iter().map(|(key, _)| key.clone()))
                    .collect(),
            };
            for key in keys {
                if !self.out.contains_key(&key) {
                    let now = values.get(&key).map(<[u8]>::to_vec);
                    let change = if self.goes(&key) { Change::Delete } else { Change::Hold(now) };
                    self.set(key, change);
                }
            }
        }
    }

    fn cells_held(&mut self, values: &Values, key: &Key) -> Vec<Raw> {
        let mut keys: Vec<Raw> = self.volume.keys.cells(key).into_iter().collect();
        if let Key::Counter(counter) = key
            && is_spread(*counter)
        {
            for (key, value) in values.rows(&self.volume.keys.writers()) {
                if !self.out.contains_key(key) {
                    self.set(key.clone(), Change::Hold(Some(value.clone())));
                }
            }
        }
        keys.dedup();
        keys
    }

    pub(super) fn set(&mut self, key: Raw, change: Change) {
        if self.out.insert(key.clone(), change).is_none() {
            self.order.push(key);
        }
    }

    /// The value that a key has by now.
    pub(super) fn now<'v>(&'v self, values: &'v Values, key: &[u8]) -> Option<&'v [u8]> {
        match self.out.get(key) {
            Some(Change::Put(value) | Change::Insert(value)) => Some(value),
            Some(Change::Delete) => None,
            Some(Change::Hold(now)) => now.as_deref(),
            None if self.goes(key) => None,
            None => values.get(key),
        }
    }

    /// The record that a key has by now.
    pub(super) fn record(&self, values: &Values, key: &Key) -> Result<Option<Row>, EngineError> {
        let Cells { first, second } = self.volume.keys.cells(key);
        let second = second.as_deref().and_then(|second| self.now(values, second));
        decode(key, self.now(values, &first), second).map_err(|damage| self.volume.corrupt(&first, damage))
    }

    /// Takes the writer record one further, with what is added to the totals.
    fn step(&mut self, values: &Values) -> Result<(), EngineError> {
        let Some(step) = self.commit.step else { return Ok(()) };
        let own = Key::Writer(step.writer, step.lane);
        let key = self.volume.keys.cells(&own).first;
        let stored = values.get(&key).map(Lane::decode).transpose();
        let stored = stored.map_err(|damage| self.volume.corrupt(&key, damage))?;
        let Some(mut lane) = stored.filter(|lane| lane.n == step.from) else {
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
        if self.fold == Fold::Now {
            let siblings = values.lanes(self.volume, &self.volume.keys.lanes(step.writer))?;
            for (sibling, stored) in siblings {
                let lane = if sibling == key { lane } else { stored };
                if lane.space != 0 || lane.inodes != 0 {
                    self.fold_into_totals(values, &sibling, &lane.encode())?;
                    self.set(sibling, Change::Put(Lane { n: lane.n, ..Lane::default() }.encode()));
                }
            }
        }
        Ok(())
    }
}
