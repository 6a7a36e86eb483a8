//! An engine that is dead for longer than anybody waits.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use sluice_faults::{
    GENEROUS, check,
    volume::{Client, Mount, Volume},
};
use sluice_testkit::server::{Redis, RedisOptions};
use sluice_types::{FsError, FsResult};
use sluice_vfs::Interrupt;

use crate::{ROOT, no_redis};

fn short_timeout() -> Mount {
    Mount { timeout: Duration::from_secs(2), ..Mount::default() }
}

fn durable() -> Redis {
    Redis::start(RedisOptions { durable: true, ..RedisOptions::default() }).unwrap()
}

/// Fails unless it ended with an I/O error that names the engine.
fn assert_reported(outcome: FsResult<()>, redis: &Redis) {
    let error = outcome.unwrap_err();
    assert_eq!(error, FsError::io(""), "{error}");
    let context = error.to_string();
    let address = redis.addr().to_string();
    assert!(context.contains("metadata engine") && context.contains(&address), "{context}");
}

#[test]
fn beyond_the_timeout_it_is_an_error_and_afterwards_all_goes_on() {
    if no_redis() {
        return;
    }
    let mut redis = durable();
    let volume = Volume::format(redis.url(0));
    let client = &volume.mount_with(&volume.url, &short_timeout());
    let dir = client.mkdir(ROOT, "dir").unwrap();
    let ino = client.put(dir, "old", b"content").unwrap();
    let (late, opened) = client.create(dir, "late").unwrap();
    redis.kill();

    let begun = Instant::now();
    thread::scope(|scope| {
        let calls: [Box<dyn Fn() -> FsResult<()> + Send + Sync>; 5] = [
            Box::new(|| client.lookup(dir, "old").map(drop)),
            Box::new(|| client.mkdir(dir, "new").map(drop)),
            Box::new(|| client.unlink(dir, "old")),
            Box::new(|| client.list(dir, true).map(drop)),
            Box::new(|| client.get(ino).map(drop)),
        ];
        let calls: Vec<_> = calls.into_iter().map(|call| scope.spawn(call)).collect();
        for call in calls {
            assert_reported(call.join().unwrap(), &redis);
        }
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
    client.write(opened.fh, 0, b"lost").unwrap();
    assert_reported(client.vfs.fsync(&client.never, opened.fh), &redis);

    redis.restart().unwrap();
    assert_eq!(client.get(ino).unwrap(), b"content");
    client.mkdir(dir, "new").unwrap();
    client.write(opened.fh, 0, b"kept").unwrap();
    client.close(opened.fh).unwrap();
    assert_eq!(client.get(late).unwrap(), b"kept");
    assert_eq!(client.list(dir, true).unwrap(), ["late", "new", "old"]);
    client.vfs.close(None).unwrap();
    // The block of the failed write may stay: nobody could be asked whether it is shown.
    check::assert_nothing_missing(&volume, &volume.url, client.vfs.data().layout(), "dead for long");
}

/// Waits on a thread of its own.
fn waiting(
    client: &Arc<Client>,
    call: impl FnOnce(&Client, &Interrupt) -> FsResult<()> + Send + 'static,
) -> (Interrupt, mpsc::Receiver<FsResult<()>>) {
    let (interrupt, (done, result)) = (Interrupt::never(), mpsc::channel());
    let (client, given) = (Arc::clone(client), interrupt.clone());
    thread::spawn(move || done.send(call(&client, &given)));
    (interrupt, result)
}

#[test]
fn who_waits_for_a_dead_engine_can_be_interrupted() {
    if no_redis() {
        return;
    }
    let mut redis = durable();
    let volume = Volume::format(redis.url(0));
    let client = Arc::new(volume.mount());
    client.put(ROOT, "f", b"x").unwrap();
    redis.kill();
    let mut calls = Vec::new();
    for number in 0..4 {
        let create = move |client: &Client, interrupt: &Interrupt| {
            client.create_by(interrupt, ROOT, &format!("new{number}")).map(drop)
        };
        calls.push(waiting(&client, create));
    }
    calls.push(waiting(&client, |client, interrupt| {
        client.vfs.lookup(&client.caller, interrupt, ROOT, b"f").map(drop)
    }));
    calls
        .push(waiting(&client, |client, interrupt| client.vfs.unlink(&client.caller, interrupt, ROOT, b"f")));
    for (number, (interrupt, result)) in calls.iter().enumerate() {
        assert_eq!(result.try_recv(), Err(mpsc::TryRecvError::Empty));
        interrupt.set();
        assert_eq!(result.recv_timeout(GENEROUS).unwrap(), Err(FsError::Interrupted), "call {number}");
    }
    redis.restart().unwrap();
    assert_eq!(client.list(ROOT, false).unwrap(), ["f"], "who gave up changed nothing");
    client.vfs.close(None).unwrap();
    check::assert_sound(&volume, &volume.url, client.vfs.data().layout(), "interrupted");
}

#[test]
fn nobody_waits_longer_because_others_wait_too() {
    if no_redis() {
        return;
    }
    let mut redis = durable();
    let volume = Volume::format(redis.url(0));
    let client = volume.mount_with(&volume.url, &short_timeout());
    redis.kill();
    // No number for a new node was fetched yet: all of them want one at the same time.
    let begun = Instant::now();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn({
                    let client = &client;
                    move || client.mkdir(ROOT, &format!("d{number}"))
                })
            })
            .collect();
        for call in calls {
            assert_reported(call.join().unwrap().map(drop), &redis);
        }
    });
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(12), "timeout is 2 s, it took {took:?}");
    redis.restart().unwrap();
    client.mkdir(ROOT, "d").unwrap();
}
