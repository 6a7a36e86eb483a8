//! The members of a cache group, as the records of members tell.
//!
//! Nothing is read yet: a volume has no records of members. The field is there so that whoever
//! reads the API need not change when it has.

use serde::Serialize;

/// The cache groups of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Group {
    /// Each with `session`, `group`, `address`, `weight`, `encrypted` (whether it answers with TLS)
    /// and `joined` (Unix seconds). Always empty for now.
    pub(crate) members: Vec<serde_json::Value>,
}
