//! One of the three members of an etcd cluster fails.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::rig::Volume;
use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use sluice_testkit::server::{Etcd, EtcdOptions};
use std::time::Duration;

/// A new leader, and a commit that waited for the old one.
const LONGEST: Duration = Duration::from_secs(30);

/// Kills or freezes a member, works on with the others, and has it come back, while two mounts are
/// worked in.
pub(super) fn members(plan: &Plan) -> anyhow::Result<()> {
    let mut etcd = Etcd::start(&EtcdOptions { members: 3, durable: true, ..EtcdOptions::default() })?;
    let meta = etcd.url("outage");
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &[])?;
    let done = killed(plan, &mut volume, &mut etcd);
    report(&volume, done)
}

fn killed(plan: &Plan, volume: &mut Volume, etcd: &mut Etcd) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let points = [volume.mount(&[])?, volume.mount(&[])?];
    let mut crew = Crew::start(&points, plan.writers, plan.seed)?;
    let mut leaders = 0;
    for _ in 0..plan.rounds {
        crew.more(rng.random_range(1..100))?;
        let leader = etcd.leader();
        // The one that decides more often than the others.
        let member = if rng.random_bool(0.5) { leader } else { None }.unwrap_or(rng.random_range(0..3));
        leaders += u64::from(leader == Some(member));
        let frozen = rng.random_bool(0.3);
        if frozen {
            etcd.freeze(member, true)?;
        } else {
            etcd.kill(member);
        }
        crew.more(50).context("with two of three members")?;
        crew.everybody().context("with two of three members")?;
        if frozen {
            etcd.freeze(member, false)?;
        } else {
            etcd.restart(member)?;
        }
    }
    crew.more(100)?;
    let outcome = crew.end()?;
    println!("{} members went, {leaders} of them led", plan.rounds);
    ensure!(outcome.longest < LONGEST, "a call took {:?}", outcome.longest);
    let meta = volume.meta.clone();
    check(volume, meta, &outcome)
}
