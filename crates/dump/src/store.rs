//! Stores records, on a few threads.
//!
//! What must stay true: what is stored twice is there once, so that a call whose answer was lost is
//! made again.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Write},
    schema::{Key, Row},
};

use crate::{DumpError, LoadOptions, fetch::join};

/// Records of one call.
pub(crate) const BATCH: usize = 4000;
/// Records of one commit.
const COMMIT: usize = 1000;
/// How long an engine that does not answer is waited for.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long until it is asked again.
const PAUSE: Duration = Duration::from_millis(200);

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
                Some(receiver) => receiver.recv(),
                None => return,
            };
            let Ok(rows) = rows else { return };
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

/// Stores records that are new, or were stored before.
fn store(engine: &dyn Engine, rows: &[Row]) -> Result<(), EngineError> {
    match patiently(|| engine.load(rows)) {
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
    patiently(|| engine.commit(&commit))
}

/// Tries what may be done twice until the engine answers.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let until = Instant::now() + PATIENCE;
    let mut said = false;
    loop {
        match ask() {
            Err(error @ (EngineError::Unavailable { .. } | EngineError::Indeterminate { .. }))
                if Instant::now() < until =>
            {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%error, "trying again for up to {} s", PATIENCE.as_secs());
                }
                thread::sleep(PAUSE);
            }
            answered => return answered,
        }
    }
}
