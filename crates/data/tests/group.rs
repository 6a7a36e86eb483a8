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
use sluice_data::{Asked, BlockKey, DataConfig, OwnerAction, Peers};
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
