//! What a check found.

use super::finding::Finding;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What does not agree.
    pub findings: Vec<Finding>,
    /// Every slice that is shown or kept, by id, with its size: its blocks have to exist.
    pub slices: Vec<(u64, u32)>,
    /// How many inodes were looked at.
    pub inodes: u64,
}
