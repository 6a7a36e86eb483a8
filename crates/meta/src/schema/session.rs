//! A mounted client, as other clients see it.

use serde::{Deserialize, Serialize};

/// When the session of a client expires that was taken for dead, and that has files left to clear
/// away.
pub(crate) const BURIED: i64 = 0;

/// A mounted client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Unix seconds after which the session counts as dead and anybody cleans up after it.
    pub expire: i64,
    /// Who it is; absent if the record is damaged or not written yet.
    pub info: Option<Box<SessionInfo>>,
}

/// Who a session is. JSON members as in the volume format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SessionInfo {
    /// Version of the client.
    pub version: String,
    /// Host it runs on.
    pub host_name: String,
    /// Addresses of the host.
    #[serde(rename = "IPAddrs", skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    /// Mount point, or what kind of service it is.
    pub mount_point: String,
    /// When it was mounted, RFC 3339.
    pub mount_time: String,
    /// Process id.
    #[serde(rename = "ProcessID")]
    pub process_id: u32,
}
