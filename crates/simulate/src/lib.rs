//! A simulator of many clients of one volume: one seed decides all that happens, and replays it.
//!
//! The clients are the real ones, over the in-memory engine. Threads run one at a time in virtual
//! time, so that a trip, a commit, an answer, a death or a jump of the clocks may come between any
//! two others. After each round all is checked: what programs were told is true, the tree is one,
//! counters are right, what is open is there, what is remembered is so, locks exclude each other
//! and are held as their owners believe. What must stay true: nothing but the seed and the code
//! decides what happens.
//!
//! # What it finds
//!
//! A mend is undone by hand, and seeds are run from 0 on: the fault must show within 10,000. Seeds
//! change with the code, so that these only say how many it takes.
//!
//! | Undone or put in | Seed |
//! |---|---|
//! | An open does not wait for the batch that destroys the file (B2 of `docs/findings.md`) | 50 |
//! | The directories above the target of a move are not guarded (B3) | 2628 |
//! | A commit that is processed late is believed (B5) | 178 |
//! | A commit whose answer was lost is sent again without asking | 0 |
//! | A commit whose answer was lost counts usage once more when it is found done | 3 |
//! | A file opened again after its last close loses its record all the same | 341 |
//! | The target directory of a rename is not guarded | 2260 |

mod act;
mod choose;
mod client;
mod engine;
mod locks;
mod plan;
mod sched;
mod seed;
mod world;

pub use plan::{Chances, ClientPlan, Plan, Theme};
pub use sched::Trace;
pub use seed::{Outcome, simulate};
