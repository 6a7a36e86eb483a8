//! The whole stack against a real S3 server, through a network that fails.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::TryStreamExt;
use sluice_object::{
    ObjectError, ObjectStore, RetryPolicy, StoreConfig, ensure_empty, layers::Stats, open, open_observed,
    probe,
};
use sluice_testkit::server::{
    objects::{self, Objects},
    s3::{ACCESS_KEY, BUCKET, Fault, S3, SECRET_KEY},
};

/// Longer than anything here should take, so that a hang fails.
const HANG: Duration = Duration::from_mins(1);

fn config(server: &S3) -> StoreConfig {
    StoreConfig {
        storage: "s3".into(),
        bucket: server.url(BUCKET),
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        name: "vol".into(),
        retry: RetryPolicy { first_pause: Duration::from_millis(1), ..RetryPolicy::default() },
        ..StoreConfig::default()
    }
}

fn with_short_timeouts(server: &S3) -> StoreConfig {
    let millis = Duration::from_millis;
    let retry = RetryPolicy {
        give_up: millis(2000),
        get_timeout: millis(400),
        put_timeout: millis(400),
        ..config(server).retry
    };
    StoreConfig { retry, ..config(server) }
}

fn block(seed: u32) -> Bytes {
    (0..4_u32 << 20).map(|at| (at.wrapping_mul(seed) >> 7) as u8).collect()
}

async fn keys(store: &Arc<dyn ObjectStore>, prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = store.list(prefix).map_ok(|meta| meta.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

#[tokio::test]
async fn keeps_objects() {
    let server = S3::start().await;
    let store = open(&config(&server)).unwrap();
    assert!(!format!("{store:?}").contains(SECRET_KEY));
    probe(store.as_ref()).await.unwrap();
    ensure_empty(store.as_ref()).await.unwrap();

    let body = block(3);
    store.put("chunks/0/0/1_0_4194304", body.clone()).await.unwrap();
    store.put("juicefs_uuid", Bytes::from_static(b"uuid")).await.unwrap();
    store.put("meta/dump-1", Bytes::from_static(b"d")).await.unwrap();
    assert_eq!(server.stored("vol/chunks/0/0/1_0_4194304").unwrap(), body);
    assert_eq!(store.get("chunks/0/0/1_0_4194304", None).await.unwrap(), body);
    assert_eq!(store.get("chunks/0/0/1_0_4194304", Some(4096..8192)).await.unwrap(), body[4096..8192]);
    assert_eq!(store.get("chunks/0/0/1_0_4194304", Some(5..5)).await.unwrap(), Bytes::new());
    let meta = store.head("chunks/0/0/1_0_4194304").await.unwrap();
    assert_eq!((meta.key.as_str(), meta.size), ("chunks/0/0/1_0_4194304", 4 << 20));
    assert!(meta.modified.unwrap().sec > 0);

    assert_eq!(keys(&store, "").await, ["chunks/0/0/1_0_4194304", "juicefs_uuid", "meta/dump-1"]);
    assert_eq!(keys(&store, "chunks/").await, ["chunks/0/0/1_0_4194304"]);
    assert_eq!(keys(&store, "meta/du").await, ["meta/dump-1"]);
    assert_eq!(keys(&store, "nothing/").await, [""; 0]);
    assert!(matches!(ensure_empty(store.as_ref()).await, Err(ObjectError::Config { .. })));

    store.delete("meta/dump-1").await.unwrap();
    store.delete("meta/dump-1").await.unwrap();
    for missing in [store.get("meta/dump-1", None).await.map(drop), store.head("meta/dump-1").await.map(drop)]
    {
        assert!(matches!(missing, Err(ObjectError::NotFound { .. })), "{missing:?}");
    }
    for range in [2..9, 20..30] {
        let past = tokio::time::timeout(HANG, store.get("juicefs_uuid", Some(range))).await;
        assert!(matches!(past, Ok(Err(ObjectError::Corrupt { .. }))), "{past:?}");
    }
}

#[test]
fn a_store_in_memory_delays_requests_and_counts_what_it_gives() {
    let server = Objects::start().unwrap();
    let config = StoreConfig {
        storage: "s3".into(),
        bucket: format!("http://{}/{}", server.address(), objects::BUCKET),
        access_key: objects::ACCESS_KEY.into(),
        secret_key: objects::SECRET_KEY.into(),
        name: "vol".into(),
        ..StoreConfig::default()
    };
    // The server has threads of its own, which must not end within others.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = open(&config).unwrap();
        probe(store.as_ref()).await.unwrap();
        assert_eq!(keys(&store, "").await, [""; 0]);
        let (gets, bytes) = (server.gets(), server.get_bytes());
        let body = block(3);
        store.put("block", body.clone()).await.unwrap();
        assert_eq!(store.head("block").await.unwrap().size, 4 << 20);
        assert_eq!(store.get("block", None).await.unwrap(), body);
        assert_eq!(store.get("block", Some(4096..8192)).await.unwrap(), body[4096..8192]);
        let delay = Duration::from_millis(20);
        server.set_delay(delay);
        let start = Instant::now();
        store.delete("block").await.unwrap();
        assert!(start.elapsed() >= delay);
        assert!(matches!(store.get("block", None).await, Err(ObjectError::NotFound { .. })));
        assert_eq!((server.gets() - gets, server.get_bytes() - bytes), (2, (4 << 20) + 4096));
    });
}

#[tokio::test]
async fn a_file_is_stored_in_parts() {
    let server = S3::start().await;
    let store = open(&config(&server)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    // The last part is a short one; then a file of one part, and an empty one.
    for length in [(37 << 20) + 5, 1000, 0] {
        let body: Vec<u8> = (0..length).map(|at: u32| (at >> 3) as u8).collect();
        std::fs::write(file.path(), &body).unwrap();
        store.put_file("meta/dump", file.path()).await.unwrap();
        assert!(store.get("meta/dump", None).await.unwrap() == body, "{length} bytes");
    }
    let error = store.put_file("meta/other", std::path::Path::new("/nowhere")).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere") && error.contains("cannot be read"), "{error}");
    assert_eq!(keys(&store, "meta/").await, ["meta/dump"]);
}

#[tokio::test]
async fn damage_in_the_bucket_is_noticed_by_whoever_reads_the_whole() {
    let server = S3::start().await;
    let store = open(&config(&server)).unwrap();
    let body = block(5);
    store.put("chunks/0/0/1_0_4194304", body.clone()).await.unwrap();
    server.damage("vol/chunks/0/0/1_0_4194304");
    let read = store.get("chunks/0/0/1_0_4194304", None).await;
    assert!(matches!(read, Err(ObjectError::Corrupt { .. })), "{read:?}");
    store.put("chunks/0/0/1_0_4194304", body.clone()).await.unwrap();
    assert_eq!(store.get("chunks/0/0/1_0_4194304", None).await.unwrap(), body);
}

#[tokio::test]
async fn an_object_that_no_block_can_be_is_not_read_into_memory() {
    let server = S3::start().await;
    let store = open(&config(&server)).unwrap();
    store.put("chunks/0/0/1_0_4194304", Bytes::from(vec![7; (64 << 20) + 1])).await.unwrap();
    let read = store.get("chunks/0/0/1_0_4194304", None).await;
    assert!(matches!(read, Err(ObjectError::Corrupt { .. })), "{:?}", read.map(|data| data.len()));
    assert_eq!(store.get("chunks/0/0/1_0_4194304", Some(0..3)).await.unwrap(), [7u8; 3][..]);
}

#[tokio::test]
async fn every_passing_fault_is_survived() {
    let server = S3::start().await;
    let stats = Arc::new(Stats::default());
    let store = open_observed(&config(&server), Arc::clone(&stats)).unwrap();
    let faults = [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Refuse,
        Fault::LoseAnswer,
        Fault::Truncate,
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let body = block(n as u32 + 5);
        let key = format!("chunks/0/0/{n}_0_4194304");
        server.inject("PUT", fault);
        store.put(&key, body.clone()).await.unwrap_or_else(|error| panic!("put with {fault:?}: {error}"));
        assert_eq!(server.stored(&format!("vol/{key}")).unwrap(), body, "{fault:?}");
        for range in [None, Some(1000..300_000)] {
            // Twice in a row: one repetition is not all that works.
            server.inject("GET", fault);
            server.inject("GET", fault);
            let data = store.get(&key, range.clone()).await;
            let data = data.unwrap_or_else(|error| panic!("get with {fault:?}: {error}"));
            assert!(
                data == range
                    .map_or(body.clone(), |range| body.slice(range.start as usize..range.end as usize)),
                "{fault:?} gave wrong bytes"
            );
        }
        server.inject("HEAD", fault);
        assert_eq!(store.head(&key).await.unwrap().size, 4 << 20, "{fault:?}");
        server.heal();
    }
    assert!(stats.get.failures() >= 2 * 2 * faults.len() as u64, "each injected fault was met");
    assert_eq!(stats.get.calls(), stats.get.failures() + 2 * faults.len() as u64);
    for fault in faults {
        server.inject("GET", fault);
        assert_eq!(keys(&store, "chunks/").await.len(), faults.len(), "list with {fault:?}");
        assert_eq!(server.pending(), 0);
        server.inject("DELETE", fault);
        server.inject("POST", fault);
        store
            .delete("chunks/0/0/0_0_4194304")
            .await
            .unwrap_or_else(|error| panic!("delete with {fault:?}: {error}"));
        server.heal();
        store.put("chunks/0/0/0_0_4194304", block(5)).await.unwrap();
    }
}

#[tokio::test]
async fn a_body_cut_short_is_never_handed_on() {
    let server = S3::start().await;
    // A busy machine may take longer than who gives up soon waits.
    let (store, steady) = (open(&with_short_timeouts(&server)).unwrap(), open(&config(&server)).unwrap());
    steady.put("k", block(9)).await.unwrap();
    for _ in 0..1000 {
        server.inject("GET", Fault::Truncate);
    }
    for range in [None, Some(0..4 << 20), Some(10..2_000_000)] {
        let cut = store.get("k", range).await;
        assert!(matches!(cut, Err(ObjectError::Unavailable { .. })), "{:?}", cut.map(|data| data.len()));
    }
    server.heal();
    // An answer that is short in itself is found out by the caller's range.
    server.inject("GET", Fault::Shorten);
    assert!(steady.get("k", Some(10..2_000_000)).await.unwrap() == block(9)[10..2_000_000]);
    assert_eq!(server.pending(), 0);
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_says_so() {
    let server = S3::start().await;
    let store = open(&with_short_timeouts(&server)).unwrap();
    store.put("k", Bytes::from_static(b"body")).await.unwrap();
    server.inject("GET", Fault::Stall);
    assert_eq!(store.get("k", None).await.unwrap(), "body", "one silent try is not the end");
    for method in ["GET", "PUT", "HEAD", "DELETE"] {
        for _ in 0..1000 {
            server.inject(method, Fault::Stall);
        }
    }
    let started = Instant::now();
    let failures = [
        store.get("k", None).await.map(drop),
        store.put("k", Bytes::from_static(b"new")).await,
        store.head("k").await.map(drop),
        store.delete("k").await,
    ];
    assert!(started.elapsed() < HANG / 2);
    for (failure, action) in failures.into_iter().zip(["read", "write", "read", "delete"]) {
        let error = failure.unwrap_err();
        assert!(matches!(error, ObjectError::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        let stated = ["no answer within", "gave up after", "s3://volumes", action];
        assert!(stated.iter().all(|part| text.contains(part)), "{text}");
    }
    let listed: Result<Vec<_>, _> = store.list("").try_collect().await;
    assert!(matches!(listed, Err(ObjectError::Unavailable { action: "list", .. })), "{listed:?}");
}

#[tokio::test]
async fn dropping_a_call_ends_it() {
    let server = S3::start().await;
    let store = open(&config(&server)).unwrap();
    store.put("k", Bytes::from_static(b"body")).await.unwrap();
    server.inject("GET", Fault::Stall);
    let arrived = async {
        while server.pending() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = store.get("k", None) => panic!("it was to be stalled"),
        () = arrived => {}
    }
    let before = server.requests();
    assert_eq!(store.get("k", None).await.unwrap(), "body");
    assert_eq!(server.requests(), before + 1, "the dropped call asks no more");
}

#[tokio::test]
async fn a_wrong_configuration_is_told_at_once() {
    let server = S3::start().await;
    let wrong = [
        (StoreConfig { bucket: server.url("nowhere"), ..config(&server) }, "no such bucket"),
        (StoreConfig { secret_key: "wrong".into(), ..config(&server) }, "check the access key"),
        (StoreConfig { access_key: "AKIANOBODY".into(), ..config(&server) }, "check the access key"),
        (StoreConfig { bucket: "http://127.0.0.1:1/data".into(), ..with_short_timeouts(&server) }, "refused"),
    ];
    for (config, advice) in wrong {
        let store = open(&config).unwrap();
        let started = Instant::now();
        let error = probe(store.as_ref()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(advice), "{text}");
        assert!(!text.contains(SECRET_KEY) && started.elapsed() < HANG / 2, "{text}");
        let lasting =
            |error: &ObjectError| matches!(error, ObjectError::Config { .. } | ObjectError::Denied { .. });
        assert_eq!(lasting(&error), advice != "refused", "{error:?}");
        let listed: Result<Vec<_>, _> = store.list("").try_collect().await;
        assert!(listed.is_err(), "a listing of {} passes for empty", config.bucket);
        if advice != "refused" {
            let read = store.get("k", None).await;
            assert!(read.as_ref().is_err_and(lasting), "{read:?}");
        }
    }
}
