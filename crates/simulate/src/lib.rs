//! A simulator of many clients of one volume: one seed decides all that happens, and replays it.
//!
//! The clients are the real ones, over the in-memory engine. Threads run one at a time, in virtual
//! time. So a request, a commit, an answer, the death of a client or a jump of the clocks may
//! happen between any two others. After each round the simulator checks: answers to programs were
//! true, the files form one tree, counters are right, the record of each open file exists, caches
//! equal the records of the engine, no two clients hold conflicting locks, and a client really
//! holds each lock that it believes it holds.
//!
//! Each answer about names must have been true at some moment between call and return. In one of
//! eight seeds the clients are whole mounts (`Vfs`) without file data. There, an open must see all
//! commits before it. No client is shown anything older than what it was shown before. A listing
//! contains every name that existed during all of it. In these seeds answers are processed in a
//! random order.
//!
//! The engine guarantees no more than the contract: in a list or a page of a scan, each record may
//! be of a different moment.
//!
//! What must stay true: nothing but the seed and the code decides what happens.
//!
//! # What it finds
//!
//! Each row undoes one fix by hand, or puts in one fault. Seeds then run from 0 on, and one of the
//! first 10,000 must show the fault. The table has the first that did. Seeds change with the code:
//! the numbers only say how long the search takes. The fault of the last row is still found too
//! rarely. In few seeds, a client reads attributes while other clients write the file and its name
//! is removed.
//!
//! | Undone or put in | Seed |
//! |---|---|
//! | An open does not wait for the batch that destroys the file (B2 of `docs/findings.md`) | 3 |
//! | The directories above the target of a move are not guarded (B3) | 3941 |
//! | The answer to a commit that is processed late overwrites newer cached records (B5) | 19 |
//! | The cleanup of a session does not check whether it was created again (B6) | 219 |
//! | A commit whose answer was lost is sent again, without a check whether it happened | 1 |
//! | A commit whose answer was lost counts usage once more when it is found done | 3 |
//! | If a file is opened again after its last close, its record is still deleted | 182 |
//! | The target directory of a rename is not guarded | 4573 |
//! | A mount does not register a file before it opens it | 996 |
//! | A mount keeps its list of slices when it commits another | 36 |
//! | An open uses cached attributes that are less than a second old | 36 |
//! | The result of a change goes to a file that was closed meanwhile (V4) | 580 |
//! | After a change of names, an answer is dropped in favour of older attributes (V5) | 67940 |

mod act;
mod choose;
mod client;
mod engine;
mod history;
mod locks;
mod lower_bounds;
mod mix;
mod mount;
mod names;
mod participant;
mod plan;
mod sched;
mod seed;
mod start_error;
mod world;

pub use mix::Mix;
pub use plan::{Chances, ClientPlan, Kind, Plan, Step, Theme};
pub use sched::Trace;
pub use seed::{Outcome, simulate};
