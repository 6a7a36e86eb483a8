//! What was read at one moment: the bytes under keys and in ranges, and the records they make.
//!
//! What must stay true: an answer that is here is never asked for again, so that one transaction
//! sees one moment.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{EngineError, List},
    schema::{Key, Row},
};

use crate::{
    codec::{decode, decode_counter},
    keys::{Cells, Place},
    kv::{Kv, Volume},
    locks::{decode_all_plocks, decode_flocks},
    stored::{Pair, Raw, Span},
    totals::{Lane, is_spread},
};

/// What is to be read.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    keys: FxHashSet<Raw>,
    /// Ranges, how many rows of each, and whether with values.
    spans: FxHashMap<Span, (usize, bool)>,
}

impl Wants {
    pub(crate) fn key(&mut self, key: Raw) {
        self.keys.insert(key);
    }

    pub(crate) fn span(&mut self, span: Span, limit: usize, values: bool) {
        let (most, any) = self.spans.entry(span).or_insert((0, false));
        *most = (*most).max(limit);
        *any |= values;
    }

    /// All that makes a record.
    pub(crate) fn record(&mut self, volume: &Volume, key: &Key) {
        if let Key::Counter(counter) = key
            && is_spread(*counter)
        {
            self.span(volume.keys.writers(), usize::MAX, true);
        }
        self.keys.extend(volume.keys.cells(key).into_iter());
    }

    /// All that makes a collection.
    pub(crate) fn list(&mut self, volume: &Volume, list: List) {
        match list {
            List::Flocks(ino) => self.key(volume.keys.flocks(ino)),
            List::Plocks(ino) => self.key(volume.keys.plocks(ino)),
            _ => spans(volume, list).into_iter().for_each(|span| self.span(span, usize::MAX, true)),
        }
    }
}

/// Where a collection lies that is no single value.
pub(crate) fn spans(volume: &Volume, list: List) -> Vec<Span> {
    let keys = &volume.keys;
    match list {
        List::Xattrs(ino) => vec![keys.xattrs(ino)],
        List::Parents(ino) => vec![keys.parents(ino)],
        List::Chunks(ino, from, to) => vec![keys.chunks(ino, from, to)],
        List::Sustained(sid) => vec![keys.sustained(sid)],
        List::Lanes(writer) => vec![keys.lanes(writer)],
        List::Changes(writer) => vec![keys.changes(writer)],
        // Nothing lists the locks of a session: those of all files are looked through, as JuiceFS
        // does.
        List::LocksOf(_) => vec![keys.word(b"F"), keys.word(b"P")],
        List::Flocks(_) | List::Plocks(_) => Vec::new(),
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Values {
    keys: FxHashMap<Raw, Option<Vec<u8>>>,
    spans: FxHashMap<Span, (usize, bool, Vec<Pair>)>,
}

impl Values {
    /// Reads what is wanted and not here: one flight.
    pub(crate) async fn fetch<K: Kv>(
        &mut self,
        kv: &K,
        at: &K::Moment,
        wants: Wants,
    ) -> Result<(), EngineError> {
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

    /// Whether the value of a key was looked for.
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

    /// What the writer records of a range add to the totals, each with its key.
    pub(crate) fn lanes(&self, volume: &Volume, span: &Span) -> Result<Vec<(Raw, Lane)>, EngineError> {
        let one = |(key, value): &Pair| match Lane::decode(value) {
            Ok(lane) => Ok((key.clone(), lane)),
            Err(damage) => Err(volume.corrupt(key, damage)),
        };
        self.rows(span).iter().map(one).collect()
    }

    /// The record of a key, whose cells were read.
    pub(crate) fn record(&self, volume: &Volume, key: &Key) -> Result<Option<Row>, EngineError> {
        let Cells { first, second } = volume.keys.cells(key);
        if let Key::Counter(counter) = key
            && is_spread(*counter)
        {
            let parts = self.lanes(volume, &volume.keys.writers())?;
            let part: i64 = parts.iter().map(|(_, lane)| lane.part_of(*counter)).sum();
            let stored = self.get(&first).map(|value| decode_counter(*counter, value)).transpose();
            let stored = stored.map_err(|damage| volume.corrupt(&first, damage))?;
            let there = stored.is_some() || part != 0;
            return Ok(there.then(|| Row::Counter(*counter, stored.unwrap_or(0) + part)));
        }
        let second = second.as_deref().and_then(|second| self.get(second));
        decode(key, self.get(&first), second).map_err(|damage| volume.corrupt(&first, damage))
    }

    /// The records of a collection that was read.
    pub(crate) fn list(&self, volume: &Volume, list: List) -> Result<Vec<Row>, EngineError> {
        let damaged = |key: &[u8], damage| volume.corrupt(key, damage);
        let single = match list {
            List::Flocks(ino) => Some(volume.keys.flocks(ino)),
            List::Plocks(ino) => Some(volume.keys.plocks(ino)),
            _ => None,
        };
        if let Some(key) = single {
            let Some(value) = self.get(&key) else { return Ok(Vec::new()) };
            return rows_at(volume, &key, value).map_err(|damage| damaged(&key, damage));
        }
        let mut rows = Vec::new();
        for span in spans(volume, list) {
            for (key, value) in self.rows(&span) {
                rows.extend(rows_at(volume, key, value).map_err(|damage| damaged(key, damage))?);
            }
        }
        rows.retain(|row| list.contains(&row.key()));
        Ok(rows)
    }
}

/// The records that a key with a value stands for, as far as one key tells.
pub(crate) fn rows_at(volume: &Volume, key: &[u8], value: &[u8]) -> Result<Vec<Row>, &'static str> {
    Ok(match volume.keys.place(key) {
        Some(Place::Record(key)) => decode(&key, Some(value), None)?.into_iter().collect(),
        Some(Place::EmptyXattr(ino, name)) => {
            decode(&Key::Xattr(ino, name), None, Some(value))?.into_iter().collect()
        }
        Some(Place::Flocks(ino)) => {
            let locks = decode_flocks(value)?;
            locks.into_iter().map(|(owner, kind)| Row::Flock(ino, owner, kind)).collect()
        }
        Some(Place::Plocks(ino)) => {
            let locks = decode_all_plocks(value)?;
            locks.into_iter().map(|(owner, ranges)| Row::Plock(ino, owner, ranges)).collect()
        }
        None => return Err("a name that is none of the volume format"),
    })
}
