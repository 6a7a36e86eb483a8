//! Outages under load: the database server dies, its answers are lost, the object store fails.
//! Applications see a delay, never an error; afterwards all is there once, and `fsck` is clean.

mod around;
mod away;
mod check;
mod etcd;
mod partition;
mod plan;
mod redis;
mod store;
mod work;
mod writer;

pub use self::{
    around::{Around, around},
    plan::{Case, Plan},
};
use anyhow::Context;

/// Runs the plan.
///
/// # Errors
/// The first thing that an application was told or that was not as it must be, with the seed.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let ran = match plan.case {
        Case::Restarts => redis::restarts(plan),
        Case::Answers => redis::answers(plan),
        Case::Away => away::run(plan),
        Case::Members => etcd::members(plan),
        Case::Partition => partition::run(plan),
        Case::Store => store::errors(plan),
    };
    ran.with_context(|| format!("seed {}", plan.seed))
}
