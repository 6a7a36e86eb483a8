//! What the last runs of `sluice fsck` and `sluice gc` found.
//!
//! This module reads nothing yet, because these commands do not store their findings. The field
//! exists so that clients of the API need no change later.

use serde::Serialize;

/// The last findings, each `None` if none is on record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reports {
    pub(crate) fsck: Option<serde_json::Value>,
    pub(crate) gc: Option<serde_json::Value>,
}
