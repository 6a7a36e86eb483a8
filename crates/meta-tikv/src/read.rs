//! Reads: many questions, one flight of point reads and ranges at one moment.
//!
//! Only what an answer names is fetched after it: the node that a followed entry stands for.

use sluice_meta::{
    engine::{EngineError, Found, Read},
    schema::{Entry, Key, Row},
};
use sluice_types::{Ino, Name};
use tikv_client::Timestamp;

use crate::{
    store::Store,
    values::{Values, Wants},
};

/// Reads everything that is asked for and not in `values`, and answers in the order of the questions.
pub(crate) async fn answer(
    store: &Store,
    at: &Timestamp,
    values: &mut Values,
    reads: &[Read],
) -> Result<Vec<Found>, EngineError> {
    let mut wants = Wants::default();
    for read in reads {
        match read {
            Read::Get(key, _) => wants.record(store, key),
            Read::Follow(dir, name, _) => wants.key(store.keys.entry(*dir, name)),
            Read::Names { dir, limit } => wants.span(store.keys.entries(*dir), *limit, false),
            Read::All(list, _) => wants.list(store, *list),
        }
    }
    values.fetch(store, at, wants).await?;
    let mut nodes = Wants::default();
    for read in reads {
        if let Read::Follow(dir, name, _) = read
            && let Some(to) = entry(store, values, *dir, name)?
        {
            nodes.key(store.keys.node(to.ino));
        }
    }
    values.fetch(store, at, nodes).await?;
    reads.iter().map(|read| found(store, values, read)).collect()
}

fn found(store: &Store, values: &Values, read: &Read) -> Result<Found, EngineError> {
    Ok(match read {
        Read::Get(key, _) => Found::Row(values.record(store, key)?),
        Read::Follow(dir, name, _) => {
            let mut rows = Vec::with_capacity(2);
            if let Some(to) = entry(store, values, *dir, name)? {
                rows.push(Row::Entry(*dir, name.clone(), to));
                rows.extend(values.record(store, &Key::Node(to.ino))?);
            }
            Found::Rows(rows)
        }
        Read::Names { dir, limit } => {
            let span = store.keys.entries(*dir);
            let names = values.rows(&span).iter().take(*limit);
            Found::Names(names.map(|(key, _)| Name::stored(&key[span.from.len()..])).collect())
        }
        Read::All(list, _) => Found::Rows(values.list(store, *list)?),
    })
}

fn entry(store: &Store, values: &Values, dir: Ino, name: &Name) -> Result<Option<Entry>, EngineError> {
    Ok(match values.record(store, &Key::Entry(dir, name.clone()))? {
        Some(Row::Entry(_, _, entry)) => Some(entry),
        _ => None,
    })
}
