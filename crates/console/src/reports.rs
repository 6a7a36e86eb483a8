//! What the last runs of `sluice fsck` and `sluice gc` found.
//!
//! Nothing is read yet: these commands keep no record of what they find. The field is there so that
//! whoever reads the API need not change when they do.

use serde::Serialize;

/// The last findings, each `None` if none is on record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reports {
    pub(crate) fsck: Option<serde_json::Value>,
    pub(crate) gc: Option<serde_json::Value>,
}
