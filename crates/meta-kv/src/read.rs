//! Reads: many questions, one flight of point reads and ranges at one moment.
//!
//! Only what an answer names is fetched after it: the node that a followed entry stands for.

use sluice_meta::{
    engine::{EngineError, Found, Read},
    schema::{Entry, Key, Row},
};
use sluice_types::{Ino, Name};

use crate::{
    kv::{Kv, Volume},
    values::{Values, Wants},
};

/// Reads everything that is asked for and not in `values`, and answers in the order of the
/// questions.
pub(crate) async fn answer<K: Kv>(
    kv: &K,
    at: &K::Moment,
    values: &mut Values,
    reads: &[Read],
) -> Result<Vec<Found>, EngineError> {
    let volume = kv.volume();
    let mut wants = Wants::default();
    for read in reads {
        match read {
            Read::Get(key) => wants.record(volume, key),
            Read::Follow(dir, name) => wants.key(volume.keys.entry(*dir, name)),
            Read::Names { dir, limit } => wants.span(volume.keys.entries(*dir), *limit, false),
            Read::All(list) => wants.list(volume, *list),
        }
    }
    values.fetch(kv, at, wants).await?;
    let mut nodes = Wants::default();
    for read in reads {
        if let Read::Follow(dir, name) = read
            && let Some(to) = entry(volume, values, *dir, name)?
        {
            nodes.key(volume.keys.node(to.ino));
        }
    }
    values.fetch(kv, at, nodes).await?;
    reads.iter().map(|read| found(volume, values, read)).collect()
}

fn found(volume: &Volume, values: &Values, read: &Read) -> Result<Found, EngineError> {
    Ok(match read {
        Read::Get(key) => Found::Row(values.record(volume, key)?),
        Read::Follow(dir, name) => {
            let mut rows = Vec::with_capacity(2);
            if let Some(to) = entry(volume, values, *dir, name)? {
                rows.push(Row::Entry(*dir, name.clone(), to));
                rows.extend(values.record(volume, &Key::Node(to.ino))?);
            }
            Found::Rows(rows)
        }
        Read::Names { dir, limit } => {
            let span = volume.keys.entries(*dir);
            let names = values.rows(&span).iter().take(*limit);
            Found::Names(names.map(|(key, _)| Name::stored(&key[span.from.len()..])).collect())
        }
        Read::All(list) => Found::Rows(values.list(volume, *list)?),
    })
}

fn entry(volume: &Volume, values: &Values, dir: Ino, name: &Name) -> Result<Option<Entry>, EngineError> {
    Ok(match values.record(volume, &Key::Entry(dir, name.clone()))? {
        Some(Row::Entry(_, _, entry)) => Some(entry),
        _ => None,
    })
}
