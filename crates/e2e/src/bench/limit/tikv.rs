//! The limit of TiKV: the records of small files, straight to the store and back.
//!
//! What must stay true: the rows are those of a load, in the same order and in transactions of the
//! same size, and as many requests are under way as a load and a dump have.

use super::kv::{pairs, ranges};
use crate::rig::Volume;
use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sluice_tikv::Stores;
use std::{sync::Arc, time::Instant};
use tikv_client::{TimestampExt as _, TransactionClient};

/// Transactions under way.
const WRITING: usize = 8;
/// Rows of one answer, and scans under way.
const PAGE: usize = 20_000;
const READING: usize = 3;

/// Seconds that it takes to read the rows of `files` files, and to store them before.
pub(crate) fn rows(volume: &Volume, files: usize) -> anyhow::Result<[f64; 2]> {
    let place = volume.meta.strip_prefix("tikv://").context("no URL of TiKV")?;
    let (hosts, _) = place.split_once('/').context("no prefix in the URL")?;
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = TransactionClient::new(hosts.clone()).await?;
        let stores = Stores::new(hosts, None);
        let pairs = Arc::new(pairs(files));
        let start = Instant::now();
        let now = async || client.current_timestamp().await.map(|now| now.version());
        stores.load(&pairs, WRITING, now).await?;
        let load = start.elapsed().as_secs_f64();
        let now = now().await?;
        let start = Instant::now();
        let reads: Vec<_> = ranges().map(|range| read(&stores, now, range)).collect();
        let counts: Vec<usize> = stream::iter(reads).buffer_unordered(READING).try_collect().await?;
        let dump = start.elapsed().as_secs_f64();
        let count: usize = counts.iter().sum();
        ensure!(count == pairs.len(), "{count} of {} rows were read", pairs.len());
        Ok([dump, load])
    })
}

/// How many rows a range has.
async fn read(stores: &Stores, version: u64, (mut from, to): (Vec<u8>, Vec<u8>)) -> anyhow::Result<usize> {
    let mut count = 0;
    loop {
        let page = stores.scan(&from, &to, version, PAGE, true).await?;
        count += page.len();
        match page.last() {
            Some((last, _)) if page.len() == PAGE => from = [&last[..], &[0]].concat(),
            _ => return Ok(count),
        }
    }
}
