//! A simulator of many clients of one volume: one seed decides all that happens, and replays it.
//!
//! The clients are the real ones, over the in-memory engine. Threads run one at a time in virtual
//! time, so that a trip, a commit, an answer, a death or a jump of the clocks may come between any
//! two others. After each round all is checked: what programs were told is true, the tree is one,
//! counters are right, what is open is there, what is remembered is so. What must stay true:
//! nothing but the seed and the code decides what happens.

mod act;
mod choose;
mod client;
mod engine;
mod plan;
mod sched;
mod seed;
mod world;

pub use plan::{Chances, ClientPlan, Plan, Theme};
pub use sched::Trace;
pub use seed::{Outcome, simulate};
