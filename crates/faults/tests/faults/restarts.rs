//! Redis ends and begins again under load: a delay for those who work, and nothing is lost.

use sluice_faults::{check, load, volume::Volume};
use sluice_testkit::server::{Redis, RedisOptions};

use crate::no_redis;

fn durable() -> Redis {
    Redis::start(RedisOptions { durable: true, ..RedisOptions::default() }).unwrap()
}

fn restarts(seed: u64, graceful: bool) {
    if no_redis() {
        return;
    }
    let mut redis = durable();
    let volume = Volume::format(redis.url(0));
    let (one, two) = (volume.mount(), volume.mount());
    let outcome = load::run(&[&one, &two], 4, seed, |progress| {
        for _ in 0..5 {
            progress.wait_for(60);
            if graceful {
                // The connection ends with the server.
                let _ = redis.command(&["SHUTDOWN"]);
            }
            redis.restart().unwrap();
        }
        progress.wait_for(60);
    });
    assert!(outcome.done >= 360, "{} operations", outcome.done);
    one.vfs.close(None).unwrap();
    two.vfs.close(None).unwrap();
    let later = volume.mount();
    outcome.assert_seen_by(&later);
    check::assert_sound(&volume, &volume.url, later.vfs.data().layout(), &format!("seed {seed}"));
}

#[test]
fn a_redis_that_is_killed_and_started_again_is_a_delay() {
    restarts(1, false);
}

#[test]
fn a_redis_that_is_shut_down_and_started_again_is_a_delay() {
    restarts(2, true);
}
