//! A mounted client, as other clients see it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::json;

/// When the session of a client expires that was fenced, and that has files left to clear
/// away.
pub(crate) const EXPIRED: i64 = 0;

/// A mounted client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Unix seconds after which the session counts as dead and anybody cleans up after it.
    pub expire: i64,
    /// Who it is: JSON, as stored; absent if it is not written yet. See [`SessionInfo::parse`].
    pub info: Option<Bytes>,
}

impl Session {
    /// Who it is; `None` if that is damaged or not written yet.
    pub fn who(&self) -> Option<SessionInfo> {
        SessionInfo::parse(self.info.as_ref()?)
    }
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
    /// Sluice's own: where it shows its metrics, as address and port; empty if nowhere, or if that
    /// is not known yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metrics_addr: String,
    /// Sluice's own: where people find a console; empty if nobody said so.
    #[serde(rename = "ConsoleURL", skip_serializing_if = "String::is_empty")]
    pub console_url: String,
}

impl SessionInfo {
    /// Reads the JSON; `None` if it is damaged.
    pub fn parse(json: &[u8]) -> Option<Self> {
        json::parse(json)
    }

    /// The JSON to store.
    pub fn to_json(&self) -> Bytes {
        json::to_json(self).into()
    }
}
