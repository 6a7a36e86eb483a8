//! A point in time, by what this client knew of changes.
//!
//! What must stay true: it is taken before the engine is asked, so that whatever changes while the
//! answer is on its way counts as later.

/// When something was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Of this client's own changes and questions, by [`super::changes::Changes::now`].
    pub(super) own: u64,
    /// Of the changes of other clients, by [`super::kernel_cache::KernelCache::now`].
    pub(super) others: u64,
}
