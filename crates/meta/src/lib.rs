//! Metadata: operations written once, over engines that only know records.
//!
//! [`engine`] is the contract with a database, [`schema`] the records, [`ops`] one file per
//! operation, [`batch`] the group commit that every operation goes through. This crate knows
//! nothing of object storage, FUSE or any particular database.

mod adding;
mod announce;
mod at;
mod backlog;
pub mod batch;
mod change_log;
pub mod check;
mod deletion;
mod effect_log;
pub mod engine;
mod env;
mod expiry;
mod fact;
mod follow;
mod grace;
mod group;
mod heartbeat;
mod id_pool;
mod ids;
mod keep_alive;
mod known;
pub mod mem;
mod meta;
pub mod op;
mod opens;
pub mod ops;
mod options;
mod outcome;
mod overlay;
mod pages;
mod parent_cache;
mod periodic_thread;
pub mod quota;
mod record_cache;
mod register;
mod report;
mod resume;
pub mod schema;
mod setting;
pub mod sort;
mod stats;
mod trash;
pub mod tree;
mod trim_log;
mod used;
mod view;
mod waiters;
mod want;

pub use backlog::TrashBacklog;
pub use batch::Interrupt;
pub use deletion::BlockSink;
pub use effect_log::{Effect, EffectKind, EffectLog, LanePast, LogSpan, Resumed};
pub use env::Env;
pub use expiry::TrashExpiry;
pub use follow::OnChange;
pub use group::Members;
pub use heartbeat::Ended;
pub use meta::Meta;
pub use options::{ClientCache, OpenError, Options};
pub use report::{FSCK_REPORT, GC_REPORT, LONGEST_REPORT};
pub use resume::TakenUp;
pub use sluice_types::Asked;
pub use stats::{MetaStats, Retries};
pub use view::{Stop, View};
pub use waiters::{LOCK_POLL_INTERVAL, Registered, Waiter, Waiters};
pub use want::Want;
