//! Rows about an object store that is far away: large files written and read while each request to
//! the store takes 20 ms, the bytes that are downloaded for it, and the processor time of the
//! mount.
//!
//! What must stay true: the store is the same for both programs, and the limit of neither: it keeps
//! its objects in memory. All reads are cold, so that each byte is downloaded at least once. The
//! limit is a plain client of the same store.

use super::{
    Side, Turn, bare_store,
    place::{Blocks, Place},
    streams::{MIB, Work, processor},
};
use anyhow::Context;
use sluice_testkit::server::objects::{ACCESS_KEY, BUCKET, Objects, SECRET_KEY};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);

/// A file for each of so many streams, together as large as the large file.
const fn streams(name: &'static str, files: usize, large: usize) -> Work {
    Work { name, files, large: large / files, request: MIB, fsync: true }
}

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let store = Objects::start().context("the object store")?;
    if turn.side == Side::Limit {
        store.set_delay(DELAY);
        let [put, got] = bare_store::measure(&store, turn.plan)?.map(Some);
        return Ok(vec![put, got, got, got, got, None, None, None, None]);
    }
    let bucket = format!("http://{}/{BUCKET}", store.address());
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let volume = turn.volume_with(&[&["--storage", "s3", "--bucket", &bucket], &keys[..]].concat())?;
    let mut place = Place::of(turn, volume, &[])?;
    let large = turn.plan.sizes.large;
    let works = [("one", 1), ("two", 2), ("four", 4), ("eight", 8)];
    let works = works.map(|(name, files)| streams(name, files, large));

    // Only the first is measured: that is the file that one stream reads.
    store.set_delay(DELAY);
    let written = works[0].write(place.path(), turn.seed())?;
    let writing = place.highest()?;
    store.set_delay(Duration::ZERO);
    for work in &works[1..] {
        work.write(place.path(), turn.seed())?;
    }

    store.set_delay(DELAY);
    place.cold(Blocks::Go)?;
    place.highest()?;
    let (mut figures, mut downloaded, mut used) = (vec![Some(written)], 0, 0.0);
    for work in works {
        let before = store.get_bytes();
        let begun = processor(place.path())?;
        figures.push(Some(work.read(place.path())?));
        used += processor(place.path())? - begun;
        // Without the mount, nothing more is downloaded.
        place.cold(Blocks::Go)?;
        downloaded += store.get_bytes() - before;
    }
    let wanted = works.len() * large * MIB;
    figures.push(Some(downloaded as f64 / wanted as f64));
    figures.push(Some(used * 1024.0 * MIB as f64 / wanted as f64));
    figures.extend([writing, place.highest()?]);
    place.finish()?;
    Ok(figures)
}
