//! Members that are gone, or slow.

use std::{sync::Arc, time::Duration};

use sluice_peer::GroupConfig;
use tokio::time::Instant;

use crate::cluster::{Cluster, TIMEOUT, fetch, key, with_long_timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_gone_is_replaced_by_the_next_one() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.node("a:1", false), cluster.node("b:1", false));
    let client = cluster.client(with_long_timeout());
    for id in 0..20 {
        assert!(fetch(&client, key(id, 100), 0..100).await);
    }
    drop(a);
    // Its connections end a moment later.
    let until = Instant::now() + TIMEOUT;
    while b.cache.held.lock().len() < 40 {
        assert!(Instant::now() < until, "the member that is left does not own all");
        for id in 0..40 {
            fetch(&client, key(id, 100), 0..100).await;
        }
    }
    for id in 0..40 {
        assert!(fetch(&client, key(id, 100), 0..100).await, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_object_store_is_away_says_so() {
    let cluster = Cluster::new(true);
    let a = cluster.node("a:1", false);
    a.cache.store.close();
    let client = cluster.client(with_long_timeout());
    assert!(!fetch(&client, key(1, 100), 0..100).await);
    assert_eq!(a.group.stats().served_none.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_read_of_the_store_is_waited_for_up_to_the_limit() {
    let cluster = Cluster::new(true);
    let a = cluster.node("a:1", false);
    a.cache.store.forget_permits(1 << 20);
    let config = GroupConfig { remote_timeout: Duration::from_millis(300), ..with_long_timeout() };
    let client = cluster.client(config);
    let started = Instant::now();
    assert!(!fetch(&client, key(1, 100), 0..100).await);
    assert!(started.elapsed() >= Duration::from_millis(300));
    let other = cluster.client(with_long_timeout());
    let store = Arc::clone(&a.cache.store);
    let waiting = tokio::spawn(async move { fetch(&other, key(1, 100), 0..100).await });
    while a.group.stats().connections.get() < 2 {
        tokio::task::yield_now().await;
    }
    store.add_permits(10);
    assert!(waiting.await.expect("it ends"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_holds_up_no_other_request() {
    for plaintext in [true, false] {
        let cluster = Cluster::new(plaintext);
        let node = cluster.node("a:1", false);
        let client = cluster.client(with_long_timeout());
        let (cold, warm) = (|id| key(id, 100), key(1000, 100));
        for block in (0..40).map(cold).chain([warm]) {
            assert!(fetch(&client, block, 0..100).await);
        }
        node.cache.cold.lock().extend((0..40).map(cold));
        node.cache.disk.hang(true);
        let asked: Vec<_> = (0..40)
            .map(|id| {
                let client = Arc::clone(&client);
                tokio::spawn(async move { fetch(&client, cold(id), 0..100).await })
            })
            .collect();
        for _ in 0..100 {
            assert!(fetch(&client, warm, 0..100).await);
        }
        for asked in asked {
            assert!(!asked.await.expect("it ends"), "the disk hangs");
        }
        let stats = node.group.stats();
        assert_eq!(stats.served_none.get(), 40, "all of them are told");
        node.cache.disk.hang(false);
        let until = Instant::now() + TIMEOUT;
        while !fetch(&client, cold(7), 0..100).await {
            assert!(Instant::now() < until, "the disk is never tried again");
            tokio::task::yield_now().await;
        }
        assert_eq!(cluster.reads(), 41, "the disk has them still");
    }
}
