//! A logical point in time: the changes that this client knew of.
//!
//! What must stay true: it is taken before a request to the engine, so that each change while the
//! answer is on its way counts as later.

/// When something was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The number of this client's own changes and requests, by [`super::changes::Changes::now`].
    pub(super) own: u64,
    /// The number of announced changes of other clients, by
    /// [`super::kernel_cache::KernelCache::now`].
    pub(super) others: u64,
}
