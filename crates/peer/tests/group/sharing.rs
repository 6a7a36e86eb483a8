//! What a group is for: one read of the object store, whoever asks.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sluice_data::{OwnerAction, Peers as _};
use sluice_peer::GroupConfig;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Node, TIMEOUT, content, fetch, key, with_long_timeout};

async fn many_clients_read_the_store_once(plaintext: bool) {
    let cluster = Cluster::new(plaintext);
    let nodes = [cluster.node("a:1", false), cluster.node("b:1", false), cluster.node("c:1", false)];
    let mut clients = JoinSet::new();
    for number in 0..10u32 {
        let client = cluster.client(with_long_timeout());
        clients.spawn(async move {
            for id in 0..60 {
                let block = key(id, [1, 11_800, 32 << 10, 100_000, 4 << 20][id as usize % 5]);
                let start = (number * 1000).min(block.size - 1);
                let end = (start + 1 + number * 40_000).min(block.size);
                assert!(fetch(&client, block, start..end).await);
                assert!(fetch(&client, block, 0..block.size).await || block.size > 4 << 20);
            }
            client.stats().hits.get()
        });
    }
    while let Some(hits) = clients.join_next().await {
        assert_eq!(hits.expect("a client"), 120);
    }
    assert_eq!(cluster.reads(), 60, "each block once");
    for node in &nodes {
        let held = node.cache.held.lock().len();
        assert!(held > 5, "{} has {held} of 60 blocks", node.name);
    }
    // Three members and ten clients asked for the list when they started, and the two members that
    // came first when they heard of the third.
    let asked = cluster.engine.asked.load(Ordering::SeqCst);
    assert!((13..=15).contains(&asked), "the engine was asked {asked} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_read_the_store_once_encrypted() {
    many_clients_read_the_store_once(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_read_the_store_once_in_plaintext() {
    many_clients_read_the_store_once(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_list_comes_from_the_members() {
    let cluster = Cluster::new(true);
    let first = cluster.node("a:1", false);
    let client = cluster.client(with_long_timeout());
    assert!(fetch(&client, key(1, 10), 0..10).await);
    let second = cluster.node("b:1", false);
    first.group.refresh().expect("with its heartbeat");
    let asked = cluster.engine.asked.load(Ordering::SeqCst);
    let until = tokio::time::Instant::now() + TIMEOUT;
    while client.members().members.len() < 2 {
        assert!(tokio::time::Instant::now() < until, "the list never came");
        assert!(fetch(&client, key(1, 10), 0..10).await);
    }
    for id in 0..40 {
        assert!(fetch(&client, key(id, 10), 0..10).await);
    }
    assert!(second.cache.held.lock().len() > 5, "the new member is used");
    assert_eq!(cluster.engine.asked.load(Ordering::SeqCst), asked, "the engine was not asked");
}

/// A member that has 40 blocks, and one that joined after it.
async fn old_and_new(cluster: &Cluster) -> (Node, Node) {
    let old = cluster.node("a:1", false);
    let client = cluster.client(with_long_timeout());
    for id in 0..40 {
        assert!(fetch(&client, key(id, 1000), 0..1000).await);
    }
    let new = cluster.node("b:1", true);
    assert_eq!(cluster.reads(), 40);
    old.group.refresh().expect("with its heartbeat");
    (old, new)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_joins_asks_the_one_before_it() {
    let cluster = Cluster::new(true);
    let (old, new) = old_and_new(&cluster).await;
    // What the new one owns it takes from the other one.
    let mut taken = 0;
    for id in 0..40 {
        taken += u32::from(fetch(&new.group, key(id, 1000), 5..1000).await);
    }
    assert_eq!(taken, 40);
    assert!(
        !fetch(&new.group, key(99, 1000), 0..1000).await
            || old.cache.held.lock().contains_key(&key(99, 1000))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_joins_asks_for_no_block_of_another_one() {
    let cluster = Cluster::new(true);
    let (old, new) = old_and_new(&cluster).await;
    let mut taken = 0;
    for block in (0..40).map(|id| key(id, 1000)) {
        let former = new.group.fetch_from_former(block).await;
        // A client that asks the new one for a block of the old one does so because that is slow.
        assert_eq!(former.is_some(), !old.group.owns(block), "{block:?}");
        taken += u32::from(former.is_some());
    }
    assert!((5..=35).contains(&taken), "{taken} of 40");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_uploads_is_offered_to_its_owner() {
    let cluster = Cluster::new(false);
    let node = cluster.node("a:1", false);
    let client = cluster.client(GroupConfig { fill: true, ..with_long_timeout() });
    let block = key(7, 3 << 20);
    client.offer(block, &content(block));
    let until = tokio::time::Instant::now() + TIMEOUT;
    while !node.cache.held.lock().contains_key(&block) {
        assert!(tokio::time::Instant::now() < until, "it never came");
        tokio::task::yield_now().await;
    }
    assert!(fetch(&client, block, 100..200).await);
    assert_eq!(cluster.reads(), 0);
    let quiet = cluster.client(with_long_timeout());
    quiet.offer(key(8, 10), &Bytes::from_static(b"0123456789"));
    assert!(fetch(&quiet, key(8, 10), 0..10).await, "it was not sent, so the store was read");
    assert_eq!(cluster.reads(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_owns_a_block_reads_it_itself() {
    let cluster = Cluster::new(true);
    let (a, b) = (cluster.node("a:1", false), cluster.node("b:1", false));
    a.group.refresh().expect("with its heartbeat");
    for id in 0..40 {
        let block = key(id, 100);
        assert_ne!(a.group.owns(block), b.group.owns(block));
        assert_eq!(fetch(&a.group, block, 0..100).await, b.group.owns(block));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_joins_is_known_at_once() {
    let cluster = Cluster::new(false);
    let old = [cluster.node("a:1", false), cluster.node("b:1", false)];
    let new = cluster.node("c:1", false);
    new.group.announce();
    let until = tokio::time::Instant::now() + TIMEOUT;
    while old.iter().any(|node| node.group.members().members.len() < 3) {
        assert!(tokio::time::Instant::now() < until, "nobody told them");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_heartbeat_reads_the_list_only_if_it_changed() {
    let cluster = Cluster::new(true);
    let first = cluster.node("a:1", false);
    let asked = || cluster.engine.asked.load(Ordering::SeqCst);
    let before = asked();
    for _ in 0..3 {
        first.group.beat().expect("the engine answers");
    }
    assert_eq!(asked(), before);
    let _second = cluster.node("b:1", false);
    let before = asked();
    first.group.beat().expect("the engine answers");
    assert_eq!((asked(), first.group.members().members.len()), (before + 1, 2));
    // The engine may have lost the newest lists.
    cluster.engine.list.lock().version = 1;
    first.group.beat().expect("the engine answers");
    assert_eq!((asked(), first.group.members().version), (before + 2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_warmed_up_is_no_read_of_another_client() {
    let cluster = Cluster::new(true);
    let node = cluster.node("a:1", false);
    let warmed = cluster.client(with_long_timeout()).at_owner(key(1, 10), OwnerAction::Warm).await;
    assert_eq!(warmed, Some(true));
    let stats = node.group.stats();
    assert_eq!((stats.served_warmed.get(), stats.served_read.get(), stats.served_none.get()), (1, 0, 0));
}
