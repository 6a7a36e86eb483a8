//! Clients without the key of the group.

use std::{sync::Arc, time::Duration};

use sluice_peer::{Directory, Group, GroupKey, KeyRing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::Handle,
    time::timeout,
};

use crate::cluster::{Cluster, TIMEOUT, fetch, key, with_long_timeout};

fn stranger(cluster: &Cluster, keys: Vec<GroupKey>) -> Arc<Group> {
    let ring = Arc::new(KeyRing::new("volume", "group", keys));
    let directory = cluster.engine.clone() as Arc<dyn Directory>;
    let group = Group::new(with_long_timeout(), Arc::clone(&ring), directory, Handle::current());
    group.refresh().expect("the list is no secret here");
    ring.replace(vec![GroupKey::new(1, &[9; 32])]);
    group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_key_gets_nothing() {
    for plaintext in [false, true] {
        let cluster = Cluster::new(plaintext);
        let node = cluster.node("a:1", false);
        node.cache.held.lock().insert(key(1, 10), crate::cluster::content(key(1, 10)));
        let client = stranger(&cluster, Vec::new());
        assert!(!fetch(&client, key(1, 10), 0..10).await);
        assert_eq!(node.group.stats().served_cached.get(), 0);
        assert!(fetch(&cluster.client(with_long_timeout()), key(1, 10), 0..10).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_certificate_is_not_talked_to() {
    let cluster = Cluster::new(false);
    let node = cluster.node("a:1", false);
    let mut member = Cluster::member(&node, false);
    member.fingerprint = Some([7; 32]);
    cluster.engine.join(member);
    let client = cluster.client(with_long_timeout());
    assert!(!fetch(&client, key(1, 10), 0..10).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_changes_while_clients_read() {
    let cluster = Cluster::new(false);
    let node = cluster.node("a:1", false);
    let old = cluster.client(with_long_timeout());
    assert!(fetch(&old, key(1, 10), 0..10).await);
    cluster.engine.keys.lock().push((2, 2));
    // The member has not heard of the new key yet.
    let early = cluster.client(with_long_timeout());
    assert!(fetch(&early, key(1, 10), 0..10).await, "with the key before it");
    node.group.refresh().expect("with its heartbeat");
    let late = cluster.client(with_long_timeout());
    assert!(fetch(&late, key(1, 10), 0..10).await);
    cluster.engine.keys.lock().remove(0);
    node.group.refresh().expect("with its heartbeat");
    assert!(fetch(&cluster.client(with_long_timeout()), key(2, 10), 0..10).await);
    // One that missed both changes learns the key from the engine.
    let until = tokio::time::Instant::now() + TIMEOUT;
    while !(fetch(&old, key(1, 10), 0..10).await && fetch(&old, key(1, 10), 0..10).await) {
        assert!(tokio::time::Instant::now() < until, "it never learned the key");
        tokio::task::yield_now().await;
    }
}

/// A connection from another address than that of the clients.
async fn from_elsewhere(port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 2], 0).into()).expect("all of 127/8 is here");
    socket.connect(([127, 0, 0, 1], port).into()).await.expect("it accepts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_keeps_out_no_other() {
    let cluster = Cluster::new(true);
    let node = cluster.node("a:1", false);
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(from_elsewhere(node.server.port()).await);
    }
    let until = tokio::time::Instant::now() + TIMEOUT;
    while node.group.stats().refused.get() < 200 {
        assert!(tokio::time::Instant::now() < until, "{:?}", node.group.stats().refused);
        tokio::task::yield_now().await;
    }
    assert!(fetch(&cluster.client(with_long_timeout()), key(1, 10), 0..10).await, "a friend gets in");
    drop(silent);
    // What has ended leaves room.
    loop {
        let mut stream = from_elsewhere(node.server.port()).await;
        if stream.read_exact(&mut [0; 40]).await.is_ok() {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "nobody gets in from there any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_or_nonsense_is_sent_away_and_learns_nothing() {
    let cluster = Cluster::new(true);
    let node = cluster.node("a:1", false);
    let address = ("127.0.0.1", node.server.port());
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(from_elsewhere(node.server.port()).await);
    }
    let mut rude = TcpStream::connect(address).await.expect("it accepts");
    rude.write_all(&[0x55; 4096]).await.expect("it is sent");
    let mut said = Vec::new();
    // A reset is an end, too.
    let _ = timeout(TIMEOUT, rude.read_to_end(&mut said)).await.expect("the connection ends");
    assert!(said.len() <= 40, "a greeting and a nonce, no more: {}", said.len());
    assert!(fetch(&cluster.client(with_long_timeout()), key(1, 10), 0..10).await, "a friend gets in");
    for stream in &mut silent {
        said.clear();
        let _ = timeout(Duration::from_mins(1), stream.read_to_end(&mut said)).await.expect("it ends");
        assert!(said.len() <= 40);
    }
}
