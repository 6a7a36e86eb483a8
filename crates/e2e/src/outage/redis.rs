//! Redis dies and comes back, or its answers are lost.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::rig::Volume;
use anyhow::ensure;
use rand::{Rng, SeedableRng, rngs::StdRng};
use sluice_testkit::server::{Behaviour, Proxy, Redis, RedisOptions};
use std::time::Duration;

/// How long everybody must be seen to wait before a dead server comes back.
const FELT: Duration = Duration::from_millis(400);

/// Kills and restarts the server while two mounts are worked in.
pub(super) fn restarts(plan: &Plan) -> anyhow::Result<()> {
    let mut redis = Redis::start(RedisOptions { durable: true, ..RedisOptions::default() })?;
    let meta = redis.url(1);
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &[])?;
    let done = restarted(plan, &mut volume, &mut redis);
    report(&volume, done)
}

fn restarted(plan: &Plan, volume: &mut Volume, redis: &mut Redis) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let points = [volume.mount(&[])?, volume.mount(&[])?];
    let mut crew = Crew::start(&points, plan.writers, plan.seed)?;
    for _ in 0..plan.rounds {
        crew.more(rng.random_range(1..100))?;
        redis.kill();
        crew.stuck(FELT)?;
        redis.restart()?;
    }
    crew.more(100)?;
    let outcome = crew.end()?;
    ensure!(outcome.longest >= FELT, "nobody noticed that Redis was gone");
    let meta = redis.url(1);
    check(volume, meta, &outcome)
}

/// Breaks what lies between a mount and the server.
pub(super) fn answers(plan: &Plan) -> anyhow::Result<()> {
    let redis = Redis::start(RedisOptions::default())?;
    let proxy = Proxy::start(redis.addr())?;
    let mut volume = Volume::at(&plan.program, &redis.url(1), &plan.within, &[])?;
    let done = unanswered(plan, &mut volume, &redis, &proxy);
    report(&volume, done)
}

fn unanswered(plan: &Plan, volume: &mut Volume, redis: &Redis, proxy: &Proxy) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    volume.meta = format!("redis://{}/1?read-timeout=500ms&dial-timeout=500ms", proxy.addr());
    let points = [volume.mount(&[])?, volume.mount(&[])?];
    let mut crew = Crew::start(&points, plan.writers, plan.seed)?;
    for _ in 0..plan.rounds {
        crew.more(rng.random_range(0..10))?;
        fault(&mut crew, proxy, &mut rng)?;
    }
    proxy.heal();
    crew.more(100)?;
    let outcome = crew.end()?;
    let lost = proxy.swallowed();
    ensure!(lost >= plan.rounds / 3, "only {lost} answers were lost");
    println!("{lost} answers were lost");
    check(volume, redis.url(1), &outcome)
}

fn fault(crew: &mut Crew, proxy: &Proxy, rng: &mut StdRng) -> anyhow::Result<()> {
    let lost = proxy.swallowed();
    match rng.random_range(0..12) {
        0 => proxy.reset(),
        1 => {
            // Requests arrive, their answers vanish, and nobody is told before the deadline.
            proxy.set(Behaviour { drop_answers: true, ..Behaviour::default() });
            crew.until("answers to be swallowed", || proxy.swallowed() > lost + 3)?;
            proxy.heal();
        }
        2 => {
            // What was sent arrives late, after its sender gave up and came by another way.
            proxy.set(Behaviour { partition: true, ..Behaviour::default() });
            crew.stuck(Duration::from_millis(rng.random_range(10..1500)))?;
            proxy.heal();
        }
        3 => {
            proxy.set(Behaviour { refuse: true, ..Behaviour::default() });
            proxy.reset();
            crew.stuck(Duration::from_millis(100))?;
            proxy.heal();
        }
        4 => {
            let delay = Duration::from_millis(rng.random_range(1..5));
            proxy.set(Behaviour { answer_delay: delay, ..Behaviour::default() });
            crew.more(5)?;
            proxy.heal();
        }
        _ => {
            proxy.cut_before_next_answer();
            crew.until("an answer to be cut", || !proxy.is_cut_pending())?;
        }
    }
    Ok(())
}
