//! A cache group under faults: mounts on machines of their own share their caches, and machines
//! die, freeze, are cut off, become slow or send garbage, while programs read.
//!
//! What must stay true: no program sees an error or a wrong byte, whatever happens to members. Ten
//! seconds after a fault began, and after it ended, reads are as fast as before.

mod cluster;
mod faults;
mod files;
mod flood;
mod garbage;
mod node;
mod plan;
mod readers;
mod watch;

pub use self::plan::Plan;
use anyhow::{Context, ensure};
use cluster::Cluster;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use watch::Watch;

/// Runs the plan. The order of the faults is drawn.
///
/// # Errors
/// The first thing that a program was told or that was not as it must be, with the seed.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    println!("seed {}, {}", plan.seed, if plan.plaintext { "plaintext" } else { "TLS" });
    let mut cluster = Cluster::start(plan).with_context(|| format!("seed {}", plan.seed))?;
    let done = meet_faults(plan, &mut cluster);
    done.with_context(|| format!("seed {}; the mounts said:\n{}", plan.seed, cluster.last_words()))
}

fn meet_faults(plan: &Plan, cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut faults: Vec<_> = faults::ALL.into_iter().filter(|(name, _)| plan.has(name)).collect();
    faults.shuffle(&mut StdRng::seed_from_u64(plan.seed));
    let mut watch = Watch::start(cluster, plan.seed)?;
    let mut failed = Vec::new();
    for (name, fault) in faults {
        println!("{name}");
        watch.before()?;
        let met = fault(cluster, &mut watch).and_then(|()| watch.is_in_budget(cluster));
        if let Err(error) = met {
            // The others are of interest, too.
            println!("FAIL {name}: {error:#}");
            failed.push(format!("{name}: {error:#}"));
            watch.check().and_then(|()| cluster.restore()).context(name)?;
        }
    }
    println!("{}", watch.end()?);
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    cluster.end()
}
