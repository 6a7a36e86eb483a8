//! Reads: many requests as one round of parallel reads of keys and ranges, from one snapshot.
//!
//! Only a node that a followed entry names needs a second round.

use sluice_meta::{
    engine::{Found, Read},
    schema::{Key, Row},
};
use sluice_types::Name;

use crate::{
    keys::Keys,
    kv::{Kv, Volume},
    stored::Result,
    values::{Values, Wants},
};

/// Reads all requested records that are not in `values`. Returns the results in the order of the
/// requests.
pub(crate) async fn answer<K: Kv>(
    kv: &K,
    at: &K::Moment,
    values: &mut Values,
    reads: &[Read],
) -> Result<Vec<Found>> {
    let volume = kv.volume();
    let mut wants = Wants::default();
    for read in reads {
        want(&volume.keys, read, &mut wants);
    }
    values.fetch(kv, at, wants).await?;
    let mut nodes = Wants::default();
    for read in reads {
        if let Read::Follow(dir, name) = read
            && let Some(Row::Entry(_, _, to)) = values.record(volume, &Key::Entry(*dir, name.clone()))?
        {
            nodes.record(&volume.keys, &Key::Node(to.ino));
        }
    }
    values.fetch(kv, at, nodes).await?;
    reads.iter().map(|read| found(volume, values, read)).collect()
}

/// Adds what a read needs, but for the node that a followed entry names.
pub(crate) fn want(keys: &Keys, read: &Read, wants: &mut Wants) {
    match read {
        Read::Get(key) => wants.record(keys, key),
        Read::Follow(dir, name) => wants.record(keys, &Key::Entry(*dir, name.clone())),
        Read::Names { dir, limit } => wants.span(keys.entries(*dir), *limit, false),
        Read::All(list) => wants.list(keys, *list),
    }
}

/// The answer to a read, from what was fetched for it.
pub(crate) fn found(volume: &Volume, values: &Values, read: &Read) -> Result<Found> {
    Ok(match read {
        Read::Get(key) => Found::Row(values.record(volume, key)?),
        Read::Follow(dir, name) => {
            let mut rows = Vec::with_capacity(2);
            rows.extend(values.record(volume, &Key::Entry(*dir, name.clone()))?);
            if let Some(Row::Entry(_, _, to)) = rows.first() {
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
