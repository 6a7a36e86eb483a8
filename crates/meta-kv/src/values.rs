//! The values that were read from one snapshot: of keys and ranges, and their records.
//!
//! What must stay true: a value that is here is never read again, so that a commit uses one
//! snapshot.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::List,
    schema::{Counter, Key, Row},
};

use crate::{
    codec::{decode, decode_counter},
    keys::{Keys, Place},
    kv::{Kv, Volume},
    locks,
    stored::{Pair, Raw, Result, Span},
    totals::{Lane, is_spread},
};

/// The keys and ranges to read.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    keys: FxHashSet<Raw>,
    /// Ranges, how many rows of each, and whether with values.
    spans: FxHashMap<Span, (usize, bool)>,
}

impl Wants {
    pub(crate) fn span(&mut self, span: Span, limit: usize, values: bool) {
        let (most, any) = self.spans.entry(span).or_insert((0, false));
        *most = (*most).max(limit);
        *any |= values;
    }

    /// Adds all keys of a record.
    pub(crate) fn record(&mut self, keys: &Keys, key: &Key) {
        if let Key::Counter(counter) = key
            && is_spread(*counter)
        {
            self.span(keys.writers(), usize::MAX, true);
        }
        self.keys.extend(keys.of(key));
    }

    /// Adds the stored keys of counters, without the parts in writer records.
    pub(crate) fn counters(&mut self, keys: &Keys, counters: &[Counter]) {
        self.keys.extend(counters.iter().map(|counter| keys.raw(&Key::Counter(*counter))));
    }

    /// Adds all keys of a collection.
    pub(crate) fn list(&mut self, keys: &Keys, list: List) {
        self.keys.extend(keys.locks(list));
        keys.spans(list).into_iter().for_each(|span| self.span(span, usize::MAX, true));
    }
}

/// A transaction that has begun, and its reads.
pub(crate) struct Begun<M> {
    pub(crate) at: M,
    pub(crate) values: Values,
}

impl<M> Begun<M> {
    /// Begins a transaction, unless one has begun.
    pub(crate) async fn or_begin<K: Kv<Moment = M>>(begun: Option<Self>, kv: &K) -> Result<Self> {
        match begun {
            Some(begun) => Ok(begun),
            None => Ok(Self { at: kv.begin().await?, values: Values::default() }),
        }
    }
}

/// The values that were read.
#[derive(Debug, Default)]
pub(crate) struct Values {
    keys: FxHashMap<Raw, Option<Vec<u8>>>,
    spans: FxHashMap<Span, (usize, bool, Vec<Pair>)>,
}

impl Values {
    /// Reads the wanted keys and ranges that are not here, in one round.
    pub(crate) async fn fetch<K: Kv>(&mut self, kv: &K, at: &K::Moment, wants: Wants) -> Result<()> {
        let keys: Vec<Raw> = wants.keys.into_iter().filter(|key| !self.keys.contains_key(key)).collect();
        let spans: Vec<(Span, (usize, bool))> = wants
            .spans
            .into_iter()
            .filter(|(span, (limit, values))| {
                self.spans.get(span).is_none_or(|(known, with, _)| known < limit || (*values && !with))
            })
            .collect();
        let ranges = spans.iter().map(|(span, (limit, values))| kv.range(at, span, *limit, *values));
        let (pairs, ranges) =
            futures::future::try_join(kv.get(at, &keys), futures::future::try_join_all(ranges)).await?;
        self.keys.extend(keys.into_iter().map(|key| (key, None)));
        self.keys.extend(pairs.into_iter().map(|(key, value)| (key, Some(value))));
        for ((span, (limit, values)), pairs) in spans.into_iter().zip(ranges) {
            self.spans.insert(span, (limit, values, pairs));
        }
        Ok(())
    }

    /// Whether a key was read.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.keys.get(key)?.as_deref()
    }

    /// The rows of a range that was read.
    pub(crate) fn rows(&self, span: &Span) -> &[Pair] {
        self.spans.get(span).map_or(&[], |(.., pairs)| pairs)
    }

    /// The writer records of a range, each with its key.
    pub(crate) fn lanes(&self, volume: &Volume, span: &Span) -> Result<Vec<(Raw, Lane)>> {
        let one = |(key, value): &Pair| {
            let lane = Lane::decode(value).map_err(|damage| volume.damaged(key, damage))?;
            Ok((key.clone(), lane))
        };
        self.rows(span).iter().map(one).collect()
    }

    /// The sum of the parts of a counter in all writer records.
    pub(crate) fn spread(&self, volume: &Volume, counter: Counter) -> Result<i64> {
        let lanes = self.lanes(volume, &volume.keys.writers())?;
        Ok(lanes.iter().map(|(_, lane)| lane.part_of(counter)).sum())
    }

    /// The record of a key that was read.
    pub(crate) fn record(&self, volume: &Volume, key: &Key) -> Result<Option<Row>> {
        let damaged = |damage| volume.damaged(&volume.keys.raw(key), damage);
        let first = self.get(&volume.keys.raw(key));
        if let Key::Counter(counter) = key
            && is_spread(*counter)
        {
            let part = self.spread(volume, *counter)?;
            let stored = first.map(|value| decode_counter(*counter, value)).transpose().map_err(damaged)?;
            let there = stored.is_some() || part != 0;
            return Ok(there.then(|| Row::Counter(*counter, stored.unwrap_or(0) + part)));
        }
        let second = volume.keys.second(key);
        decode(key, first, second.and_then(|second| self.get(&second))).map_err(damaged)
    }

    /// The records of a collection that was read.
    pub(crate) fn list(&self, volume: &Volume, list: List) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut add =
            |key: &[u8], value: &[u8]| rows_at(volume, key, volume.keys.place(key), value, &mut rows);
        if let Some(key) = volume.keys.locks(list)
            && let Some(value) = self.get(&key)
        {
            add(&key, value)?;
        }
        for (key, value) in volume.keys.spans(list).iter().flat_map(|span| self.rows(span)) {
            add(key, value)?;
        }
        rows.retain(|row| list.contains(&row.key()));
        Ok(rows)
    }
}

/// Adds the records of a key with its value to `rows`, if one key is enough to decode them. `place`
/// is that of the key.
pub(crate) fn rows_at(
    volume: &Volume,
    key: &[u8],
    place: Option<Place>,
    value: &[u8],
    rows: &mut Vec<Row>,
) -> Result<()> {
    let found = match place {
        Some(Place::Record(key)) => decode(&key, Some(value), None).map(|row| rows.extend(row)),
        Some(Place::Empty(key)) => decode(&key, None, Some(value)).map(|row| rows.extend(row)),
        Some(Place::Locks(list)) => locks::decode(list, value).map(|found| rows.extend(found)),
        None => Err("a name that is none of the volume format"),
    };
    found.map_err(|damage| volume.damaged(key, damage))
}
