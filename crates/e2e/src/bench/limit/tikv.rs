//! The limit of TiKV: the records of small files, straight to the store and back.
//!
//! What must stay true: the rows are those of a load, in the same order and in transactions of the
//! same size, and as many requests are under way as a load and a dump have.

use super::{ATTR, FIRST, SLICE};
use crate::rig::Volume;
use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sluice_tikv::{Pair, Stores};
use std::{sync::Arc, time::Instant};
use tikv_client::{TimestampExt as _, TransactionClient};

/// Transactions under way.
const WRITING: usize = 16;
/// Rows of one answer, and scans under way.
const PAGE: usize = 4096;
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
        let reads = (0..=u8::MAX).step_by(16).map(|first| read(&stores, now, first)).collect::<Vec<_>>();
        let counts: Vec<usize> = stream::iter(reads).buffer_unordered(READING).try_collect().await?;
        let dump = start.elapsed().as_secs_f64();
        let count: usize = counts.iter().sum();
        ensure!(count == pairs.len(), "{count} of {} rows were read", pairs.len());
        Ok([dump, load])
    })
}

/// The keys of the inodes whose number ends with this byte.
fn group(last: u8) -> Vec<u8> {
    [&b"limit\xfdA"[..], &[last]].concat()
}

/// All rows, in the order of their keys.
fn pairs(files: usize) -> Vec<Pair> {
    let of = |inode: i64| {
        let node = [&b"limit\xfdA"[..], &inode.to_le_bytes()].concat();
        let name = format!("Dfile.mdtest.{inode}");
        let entry = [&b"limit\xfdA"[..], &1_i64.to_le_bytes(), name.as_bytes()].concat();
        let named = [&[1][..], &inode.to_be_bytes()].concat();
        let chunk = [&node[..], b"C\0\0\0\0"].concat();
        [(entry, named), ([&node[..], b"I"].concat(), ATTR.to_vec()), (chunk, SLICE.to_vec())]
    };
    let mut pairs: Vec<Pair> = (FIRST..FIRST + files as i64).flat_map(of).collect();
    pairs.sort_unstable();
    pairs
}

/// How many rows there are of 16 groups of inodes.
async fn read(stores: &Stores, version: u64, first: u8) -> anyhow::Result<usize> {
    let (mut from, mut count) = (group(first), 0);
    let to = match first.checked_add(16) {
        Some(next) => group(next),
        None => b"limit\xfdB".to_vec(),
    };
    loop {
        let page = stores.scan(&from, &to, version, PAGE, true).await?;
        count += page.len();
        match page.last() {
            Some((last, _)) if page.len() == PAGE => from = [&last[..], &[0]].concat(),
            _ => return Ok(count),
        }
    }
}
