//! The limit of etcd: the records of small files, straight to the servers and back.
//!
//! What must stay true: the rows are those of a load, in the same order and in transactions of the
//! same size, and as many requests are under way as a load and a dump have.

use super::kv::{pairs, ranges};
use crate::rig::Volume;
use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sluice_meta_kv::{Etcd, Kv as _, Pair, Span};
use std::time::Instant;

/// Rows that are handed on together, and how often at once. The engine divides them further.
const ROWS: usize = 20_000;
const WRITING: usize = 4;
/// Scans under way.
const READING: usize = 3;

/// Seconds that it takes to read the rows of `files` files, and to store them before.
pub(crate) fn rows(volume: &Volume, files: usize) -> anyhow::Result<[f64; 2]> {
    let etcd = &Etcd::open(&volume.meta)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let pairs = pairs(files);
        let start = Instant::now();
        let write = |rows: &[Pair]| etcd.load(rows.to_vec());
        let writes = stream::iter(pairs.chunks(ROWS)).map(write).buffer_unordered(WRITING);
        writes.try_collect::<()>().await?;
        let load = start.elapsed().as_secs_f64();
        let at = &etcd.begin_reading().await?;
        let start = Instant::now();
        let read = async |(from, to)| etcd.range(at, &Span { from, to }, usize::MAX, true).await;
        let reads = stream::iter(ranges()).map(read).buffer_unordered(READING);
        let count = reads.try_fold(0, |count, rows| async move { Ok(count + rows.len()) }).await?;
        let dump = start.elapsed().as_secs_f64();
        ensure!(count == pairs.len(), "{count} of {} rows were read", pairs.len());
        Ok([dump, load])
    })
}
