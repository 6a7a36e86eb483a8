//! Blocks of a cache group, with members that do what the test wants.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use sluice_data::{Asked, BlockKey, CacheConfig, DataConfig, OwnerAction, Peers};
use sluice_types::{Ino, Time};
use tokio::{runtime::Builder, sync::Notify};

use self::support::{Volume, small};

/// A group whose former owner of all blocks has none, and answers the first question late.
#[derive(Debug, Default)]
struct LateFormer {
    asked: AtomicBool,
    begun: Notify,
    answer: Notify,
}

impl Peers for LateFormer {
    fn owns(&self, _: BlockKey) -> bool {
        true
    }

    fn owner_host(&self, _: BlockKey) -> Option<String> {
        None
    }

    fn fetch(&self, _: BlockKey, _: Range<u32>) -> Asked<'_, Bytes> {
        Box::pin(async { None })
    }

    fn fetch_from_former(&self, _: BlockKey) -> Asked<'_, Bytes> {
        Box::pin(async {
            if !self.asked.swap(true, Ordering::SeqCst) {
                self.begun.notify_one();
                self.answer.notified().await;
            }
            None
        })
    }

    fn at_owner(&self, _: BlockKey, _: OwnerAction) -> Asked<'_, bool> {
        Box::pin(async { None })
    }

    fn offer(&self, _: BlockKey, _: &Bytes) {}
}

#[test]
fn one_that_comes_when_the_read_has_just_ended_does_not_read_again() {
    let (volume, content) = (Volume::default(), vec![7; 4096]);
    let group = Arc::new(LateFormer::default());
    let writer = volume.open(&small(4096));
    writer.writer(Ino(9)).write(0, &content, Time::from_nanos(1)).unwrap();
    writer.flush(Ino(9)).unwrap();
    let block = writer.layout().parts(volume.index.records()[0]).next().unwrap().block;
    let member = volume.open(&DataConfig { peers: Some(group.clone()), ..small(4096) });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let late = member.read_for_peer(block);
        let other = async {
            // The late one has looked into the caches and found nothing.
            group.begun.notified().await;
            let whole = member.read_for_peer(block).await.unwrap();
            group.answer.notify_one();
            whole
        };
        let (late, other) = tokio::join!(late, other);
        assert!(late.unwrap() == content && other == content);
    });
    assert_eq!(volume.store.faults.gets.load(Ordering::SeqCst), 1);
}

#[test]
fn blocks_are_kept_for_others_although_the_disk_does_not_keep_up() {
    const BLOCKS: usize = 200;
    let (volume, content) = (Volume::default(), vec![7; BLOCKS * 4096]);
    let writer = volume.open(&small(4096));
    writer.writer(Ino(9)).write(0, &content, Time::from_nanos(1)).unwrap();
    writer.flush(Ino(9)).unwrap();
    let records = volume.index.records();
    let blocks: Vec<_> = records.iter().flat_map(|slice| writer.layout().parts(*slice)).collect();
    let dir = tempfile::tempdir().unwrap();
    let cache =
        CacheConfig { dirs: vec![dir.path().into()], free_space_ratio: 0.0, ..CacheConfig::default() };
    // No block stays in memory, and two may wait to be written.
    let member = volume.open(&DataConfig { cache, buffer_size: 16 << 10, ..small(4096) });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..2 {
        let read = join_all(blocks.iter().map(|part| member.read_for_peer(part.block)));
        assert!(runtime.block_on(read).into_iter().all(|whole| whole.unwrap() == content[..4096]));
    }
    assert_eq!(volume.store.faults.gets.load(Ordering::SeqCst), blocks.len() as u64);
}

/// A member that has all of one file, and notes what it is asked for.
#[derive(Debug)]
struct Owner {
    content: Bytes,
    asked: Mutex<Vec<Range<u32>>>,
}

impl Peers for Owner {
    fn owns(&self, _: BlockKey) -> bool {
        false
    }

    fn owner_host(&self, _: BlockKey) -> Option<String> {
        None
    }

    fn fetch(&self, _: BlockKey, range: Range<u32>) -> Asked<'_, Bytes> {
        self.asked.lock().push(range.clone());
        let bytes = self.content.slice(range.start as usize..range.end as usize);
        Box::pin(async { Some(bytes) })
    }

    fn fetch_from_former(&self, _: BlockKey) -> Asked<'_, Bytes> {
        Box::pin(async { None })
    }

    fn at_owner(&self, _: BlockKey, _: OwnerAction) -> Asked<'_, bool> {
        Box::pin(async { None })
    }

    fn offer(&self, _: BlockKey, _: &Bytes) {}
}

#[test]
fn a_small_block_comes_whole_and_is_kept_if_there_is_memory() {
    let parts = || vec![100..1700, 9000..10_600];
    let whole: Vec<_> = std::iter::once(0..64 << 10).collect();
    for (size, memory, wanted) in
        [(64 << 10, 16 << 20, whole), ((64 << 10) + 1, 16 << 20, parts()), (64 << 10, 1 << 20, parts())]
    {
        let content: Bytes = (0..size).map(|at: u32| (at % 251) as u8).collect();
        let volume = Volume::default();
        let writer = volume.open(&small(1 << 20));
        writer.writer(Ino(9)).write(0, &content, Time::from_nanos(1)).unwrap();
        writer.flush(Ino(9)).unwrap();
        let owner = Arc::new(Owner { content: content.clone(), asked: Mutex::default() });
        let peers: Arc<dyn Peers> = owner.clone();
        let client = volume.open(&DataConfig { peers: Some(peers), buffer_size: memory, ..small(1 << 20) });
        for at in [100, 9000] {
            let found = support::read_all(&client, Ino(9), at, 1600, u64::from(size)).unwrap();
            assert!(found == content[at as usize..at as usize + 1600]);
        }
        assert_eq!(*owner.asked.lock(), wanted, "{size} bytes, {memory} of memory");
    }
}
