//! The record that says which commits a fenced client had reached.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::json;

/// The last commits of a client that others took for dead. Whoever fences it writes this, in the
/// commit that removes its writer records. A client that comes back reads there whether a commit
/// happened whose answer it did not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastCommits {
    /// When it was fenced last, Unix seconds.
    pub fenced: i64,
    /// By lane, the number of the last commit.
    pub lanes: BTreeMap<u16, u64>,
}

impl LastCommits {
    /// Reads the JSON; `None` if it is damaged.
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
    fn what_is_stored_is_read() {
        let last = LastCommits { fenced: 5, lanes: BTreeMap::from([(0, 7), (3, 1)]) };
        assert_eq!(last.to_json(), br#"{"fenced":5,"lanes":{"0":7,"3":1}}"#);
        assert_eq!(LastCommits::parse(&last.to_json()), Some(last));
        assert_eq!(LastCommits::parse(b"{"), None);
    }
}
