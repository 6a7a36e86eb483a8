//! Loads a dump into an empty database.

use std::{collections::BTreeSet, io::Read};

use sluice_meta::{
    engine::{Engine, Found, Read as Question},
    schema::{Counter, Key, Row, Session, VolumeFormat},
};
use sluice_types::{Ino, Name};

use crate::{
    DumpError, LoadOptions, binary,
    build::Builder,
    json,
    retry::retry,
    slice_refs::SliceRefs,
    store::{BATCH, in_batches, stored},
    target::{finish, prepare},
};

/// KiB of the blocks that volumes can have.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 64..=16 << 10;

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
    reader.finish()?;
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
    /// References of slices.
    refs: SliceRefs,
    /// The directories of files with several names, which are stored after their nodes.
    parents: Vec<(Ino, Ino, i64)>,
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
                Row::SliceRef(..) => continue,
                Row::Parents(ino, dir, count) => {
                    self.parents.push((*ino, *dir, *count));
                    continue;
                }
                Row::Chunk(_, _, slices) => {
                    sifted.extend(slices.iter().filter_map(|slice| self.refs.refer(slice)));
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

    fn rows(self) -> impl Iterator<Item = Row> {
        let acls = Row::Counter(Counter::AclMaxId, i64::from(self.acls));
        let expired = |sid| Row::Session(sid, Session { expire: 1, info: None });
        let parents = self.parents.into_iter().map(|(ino, dir, count)| Row::Parents(ino, dir, count));
        self.refs.shared().chain(parents).chain([acls]).chain(self.sessions.into_iter().map(expired))
    }
}

/// The settings. A volume that no client of this version could open is not loaded, nor one whose
/// objects would lie outside of its folder: `destroy` would delete those of others.
fn parse(setting: &[u8]) -> Result<VolumeFormat, DumpError> {
    let parsed = VolumeFormat::parse(setting).and_then(|format| format.check().map(|()| format));
    let format = parsed.map_err(|error| DumpError::Setting(error.to_string()))?;
    let wrong = |what: String| Err(DumpError::Setting(what));
    if Name::new(format.name.as_bytes()).is_err() {
        return wrong(format!("{:?} is no name for a volume", format.name));
    }
    if format.uuid.is_empty() {
        return wrong("the volume has no UUID".into());
    }
    // In KiB.
    if !BLOCK_SIZES.contains(&format.block_size) {
        return wrong(format!("its blocks of {} KiB are not of 64 KiB to 16 MiB", format.block_size));
    }
    Ok(format)
}

fn parent_of(engine: &dyn Engine, ino: Ino) -> Result<Ino, DumpError> {
    match retry(|| engine.read(&[Question::Get(Key::Node(ino))]))?.into_iter().next() {
        Some(Found::Row(Some(Row::Node(_, attr)))) => Ok(attr.parent),
        _ => Err(DumpError::Text(format!("node {ino} is not in the database any more"))),
    }
}
