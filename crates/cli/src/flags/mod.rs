//! Flags that several commands share, and what they mean to the layers below.
//!
//! What must stay true: names and defaults are those that `JuiceFS` users know; a flag that has no
//! effect here says so when it is given.

mod cache;
mod fuse;
mod meta;
mod metrics;
mod store;

pub(crate) use cache::CacheFlags;
pub(crate) use fuse::FuseFlags;
pub(crate) use meta::{Atime, MetaCacheFlags, MetaFlags};
pub(crate) use metrics::MetricsFlags;
pub(crate) use store::{StoreFlags, TransferFlags};

/// Flags that were given and do nothing.
#[derive(Default)]
pub(crate) struct Idle(Vec<&'static str>);

impl Idle {
    /// Notes a flag if it was given.
    pub(crate) fn note(&mut self, flag: &'static str, given: bool) {
        if given {
            self.0.push(flag);
        }
    }

    /// Tells the user.
    pub(crate) fn warn(&self) {
        for flag in &self.0 {
            tracing::warn!("{flag} has no effect in this version");
        }
    }
}
