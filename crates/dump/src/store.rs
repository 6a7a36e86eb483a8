//! Stores records, on a few threads.
//!
//! What must stay true: storing is idempotent. So a call whose answer was lost can be repeated.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Write},
    schema::{Key, Row},
};
use sluice_types::Name;

use crate::{DumpError, LoadOptions, fetch::join, retry::retry};

/// Records that are handed on at once.
pub(crate) const BATCH: usize = 4000;
/// Records of one commit.
const COMMIT: usize = 1000;

/// What takes records.
pub(crate) type Take<'t> = dyn FnMut(Vec<Row>) -> Result<(), DumpError> + 't;

/// Hands records on, some at a time.
pub(crate) fn in_batches(rows: impl IntoIterator<Item = Row>, take: &mut Take<'_>) -> Result<(), DumpError> {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        take(rows.by_ref().take(BATCH).collect())?;
    }
    Ok(())
}

/// Stores what `produce` hands to its argument, and waits for it.
pub(crate) fn stored(
    engine: &dyn Engine,
    options: LoadOptions,
    progress: &(dyn Fn(u64) + Sync),
    produce: impl FnOnce(&mut Take<'_>) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let (sender, receiver): (SyncSender<Vec<Row>>, Receiver<Vec<Row>>) = sync_channel(options.threads.max(1));
    let receiver = Mutex::new(Some(receiver));
    let failed: Mutex<Option<EngineError>> = Mutex::new(None);
    let worker = || {
        loop {
            let rows = match &*receiver.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(receiver) => gathered(receiver, engine.load_size()),
                None => return,
            };
            if rows.is_empty() {
                return;
            }
            match store(engine, &rows) {
                Ok(()) => progress(rows.len() as u64),
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    // Whoever produces hears of it when nobody takes any more.
                    receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return;
                }
            }
        }
    };
    let produced = thread::scope(|scope| {
        let threads = (0..options.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let produced = produce(&mut |rows| {
            if rows.is_empty() {
                return Ok(());
            }
            rows.iter().for_each(warn_of_name);
            sender.send(rows).map_err(|_| DumpError::File(std::io::ErrorKind::BrokenPipe.into()))
        });
        drop(sender);
        join(threads);
        produced
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => produced,
    }
}

/// Others may have stored a name that no program can use. What else the volume has must not be lost
/// for it.
fn warn_of_name(row: &Row) {
    if let Row::Entry(dir, name, entry) = row
        && Name::new(name).is_err()
    {
        let name = name.escape_ascii();
        tracing::warn!(%dir, ino = %entry.ino, "no program can use the name \"{name}\"");
    }
}

/// At least so many records, but for the last.
fn gathered(receiver: &Receiver<Vec<Row>>, size: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    while rows.len() < size
        && let Ok(more) = receiver.recv()
    {
        rows.extend(more);
    }
    rows
}

/// Stores records that are new, or were stored before.
fn store(engine: &dyn Engine, rows: &[Row]) -> Result<(), EngineError> {
    match retry(|| engine.load(rows)) {
        Err(EngineError::Conflict(_)) => {
            let each: BTreeMap<Key, &Row> = rows.iter().map(|row| (row.key(), row)).collect();
            let rows: Vec<&Row> = each.into_values().collect();
            rows.chunks(COMMIT).try_for_each(|rows| {
                commit(engine, rows.iter().map(|row| Write::Put((*row).clone())).collect())
            })
        }
        stored => stored,
    }
}

/// Commits writes that may be made twice.
pub(crate) fn commit(engine: &dyn Engine, writes: Vec<Write>) -> Result<(), EngineError> {
    let commit = Commit { writes, ..Commit::default() };
    retry(|| engine.commit(&commit))
}
