//! Loads a dump into an empty database.
//!
//! What must stay true: the settings are written last, so that a database that holds only a part of
//! a dump holds no volume.

use std::{
    collections::BTreeSet,
    io::Read,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use roaring::RoaringTreemap;
use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read as Question, Scan, Write},
    schema::{Counter, Key, Row, Session, VolumeFormat},
};
use sluice_types::Ino;

use crate::{DumpError, LoadOptions, binary, build::Builder, fetch::join, json};

/// Records of one write.
const BATCH: usize = 1000;

/// Loads the JSON dump `input` into `engine`, which holds nothing. `progress` hears of records.
///
/// # Errors
/// If the dump cannot be read, the database cannot be written, or it holds a volume.
pub fn load_json(
    engine: &dyn Engine,
    input: impl Read,
    options: LoadOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), DumpError> {
    let (mut reader, head) = json::Reader::new(input)?;
    let format = parse(&head.setting)?;
    prepare(engine)?;
    let mut rows = Vec::new();
    let mut builder = Builder::new(head, format.user_group_quota, format.dir_stats, &mut rows);
    stored(engine, options, progress, |store| {
        while let Some(event) = reader.event()? {
            builder.event(event, &mut rows)?;
            if rows.len() >= BATCH {
                store(std::mem::take(&mut rows))?;
            }
        }
        store(std::mem::take(&mut rows))
    })?;
    let mut rows = Vec::new();
    builder.finish(|ino| parent_of(engine, ino), &mut rows)?;
    stored(engine, options, progress, |store| in_batches(rows, store))?;
    finish(engine, &format)
}

/// Loads the binary dump `input`, as [`load_json`].
///
/// # Errors
/// As [`load_json`].
pub fn load_binary(
    engine: &dyn Engine,
    input: impl Read,
    options: LoadOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), DumpError> {
    let mut reader = binary::Reader::new(input);
    let Some(Row::Setting(setting)) = reader.segment()?.and_then(|rows| rows.into_iter().next()) else {
        return Err(DumpError::damaged("a dump without settings", 0));
    };
    let format = parse(&setting)?;
    prepare(engine)?;
    let mut rest = Rest::default();
    stored(engine, options, progress, |store| {
        while let Some(rows) = reader.segment()? {
            in_batches(rest.sift(rows), store)?;
        }
        Ok(())
    })?;
    stored(engine, options, progress, |store| in_batches(rest.rows(), store))?;
    finish(engine, &format)
}

/// What is written after all else of a binary dump.
#[derive(Default)]
struct Rest {
    /// The slices of chunks. Of those that one record shows there is nothing in a dump.
    slices: RoaringTreemap,
    /// References of the others.
    shared: Vec<Row>,
    /// The highest id of an ACL.
    acls: u32,
    /// Sessions that had deleted files open. Whoever made the dump is gone: they have expired.
    sessions: BTreeSet<u64>,
}

impl Rest {
    /// Keeps back what has to wait, and adds what follows.
    fn sift(&mut self, rows: Vec<Row>) -> Vec<Row> {
        let mut sifted = Vec::with_capacity(rows.len());
        for row in rows {
            match &row {
                Row::SliceRef(id, ..) => {
                    if *id != 0 {
                        self.shared.push(row);
                    }
                    continue;
                }
                Row::Chunk(_, _, slices) => {
                    for slice in slices.iter().filter(|slice| slice.id != 0) {
                        if self.slices.insert(slice.id) {
                            sifted.push(Row::SliceRef(slice.id, slice.size, 1));
                        }
                    }
                }
                Row::Acl(id, _) => self.acls = self.acls.max(*id),
                Row::Sustained(sid, _) => {
                    self.sessions.insert(*sid);
                }
                _ => {}
            }
            sifted.push(row);
        }
        sifted
    }

    fn rows(self) -> Vec<Row> {
        let acls = Row::Counter(Counter::AclMaxId, i64::from(self.acls));
        let expired = |sid| Row::Session(sid, Session { expire: 1, info: None });
        self.shared.into_iter().chain([acls]).chain(self.sessions.into_iter().map(expired)).collect()
    }
}

fn parse(setting: &[u8]) -> Result<VolumeFormat, DumpError> {
    VolumeFormat::parse(setting).map_err(|error| DumpError::Setting(error.to_string()))
}

/// Makes tables, and makes sure that nothing is in them.
fn prepare(engine: &dyn Engine) -> Result<(), DumpError> {
    engine.prepare()?;
    let setting = engine.read(&[Question::Get(Key::Setting)])?;
    let nodes = engine.scan(Scan::Nodes, None, 1)?;
    if setting != [Found::Row(None)] || !nodes.rows.is_empty() || !nodes.damaged.is_empty() {
        return Err(DumpError::NotEmpty);
    }
    Ok(())
}

fn parent_of(engine: &dyn Engine, ino: Ino) -> Result<Ino, DumpError> {
    match engine.read(&[Question::Get(Key::Node(ino))])?.into_iter().next() {
        Some(Found::Row(Some(Row::Node(_, attr)))) => Ok(attr.parent),
        _ => Err(DumpError::Text(format!("node {ino} is not in the database any more"))),
    }
}

/// The volume is there from now on.
fn finish(engine: &dyn Engine, format: &VolumeFormat) -> Result<(), DumpError> {
    engine.commit(&put(vec![Row::setting(format)]))?;
    engine.sync()?;
    Ok(())
}

fn put(rows: Vec<Row>) -> Commit {
    Commit { writes: rows.into_iter().map(Write::Put).collect(), ..Commit::default() }
}

fn in_batches(
    rows: Vec<Row>,
    store: &mut dyn FnMut(Vec<Row>) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        store(rows.by_ref().take(BATCH).collect())?;
    }
    Ok(())
}

/// Stores what `produce` hands to its argument, on a few threads, and waits for it.
fn stored(
    engine: &dyn Engine,
    options: LoadOptions,
    progress: &(dyn Fn(u64) + Sync),
    produce: impl FnOnce(&mut dyn FnMut(Vec<Row>) -> Result<(), DumpError>) -> Result<(), DumpError>,
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
            let count = rows.len() as u64;
            match engine.commit(&put(rows)) {
                Ok(()) => progress(count),
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
