//! The record of a member of a cache group.

use serde::{Deserialize, Serialize};

use super::json;

/// A client that serves blocks of its cache to others. Its record lives as long as its session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its session id.
    pub sid: u64,
    /// Name of the group.
    pub group: String,
    /// The name by which blocks are given to it. One that comes back with it owns the same blocks.
    pub name: String,
    /// Where it answers, as `host:port`.
    pub address: String,
    /// Name of its machine; empty if an older client wrote the record.
    pub host: String,
    /// Its share of the blocks, compared with that of the others. At 0 it gets no new ones.
    pub weight: u32,
    /// How often this session has joined, from 1 on.
    pub epoch: u64,
    /// SHA-256 of its certificate; `None` if it answers without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<[u8; 32]>,
    /// When it joined last, Unix seconds.
    pub joined: i64,
    /// Until when it asks the member that owned a block before, Unix seconds; 0 for never.
    pub backup_until: i64,
}

impl Member {
    /// Reads the JSON; `None` if it is damaged. Members that a newer client added are ignored.
    pub fn parse(json: &[u8]) -> Option<Self> {
        json::parse(json)
    }

    /// The JSON to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::to_json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_client_added_is_ignored() {
        let json = br#"{"sid":7,"group":"g","address":"h:1","weight":100,"epoch":2,"joined":5,"rack":[1]}"#;
        let member = Member {
            sid: 7,
            group: "g".into(),
            name: String::new(),
            address: "h:1".into(),
            host: String::new(),
            weight: 100,
            epoch: 2,
            fingerprint: None,
            joined: 5,
            backup_until: 0,
        };
        assert_eq!(Member::parse(json), Some(member.clone()));
        let sealed = Member { fingerprint: Some([9; 32]), ..member };
        assert_eq!(Member::parse(&sealed.to_json()), Some(sealed));
        assert_eq!(Member::parse(b"{"), None);
    }
}
