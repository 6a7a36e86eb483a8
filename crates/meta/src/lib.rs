//! Metadata: operations written once, over engines that only know records.
//!
//! [`engine`] is the contract with a database, [`schema`] the records, [`ops`] one file per
//! operation, [`batch`] the group commit that every operation goes through. This crate knows
//! nothing of object storage, FUSE or any particular database.

mod above;
mod announce;
pub mod batch;
mod beater;
pub mod check;
mod deletion;
pub mod engine;
mod env;
mod follow;
mod heartbeat;
mod ids;
mod known;
mod ledger;
pub mod mem;
mod meta;
pub mod near;
pub mod op;
mod opens;
pub mod ops;
mod outcome;
mod overlay;
mod pages;
mod recall;
mod resume;
pub mod schema;
pub mod tree;
mod used;
mod view;
mod waiters;

pub use batch::Interrupt;
pub use deletion::BlockSink;
pub use env::Env;
pub use follow::{ClientCache, OnChange};
pub use heartbeat::Ended;
pub use ledger::{Deed, DeedKind, Ledger, Noted};
pub use meta::{Meta, OpenError, Options};
pub use resume::{LanePast, Resumed, TakenUp};
pub use sluice_types::Asked;
pub use view::{Stop, View};
pub use waiters::{LOOK, Registered, Waiter, Waiters};
