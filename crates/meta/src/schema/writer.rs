//! Writer records: the identity of a client that commits.

/// Identity of a process that commits: its session id. Whoever cleans up after a dead session
/// removes its writer records too, and thereby fences it.
pub type WriterId = u64;

/// Commits of a lane whose changes are kept.
pub const RING: u64 = 1024;
