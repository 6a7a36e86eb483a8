//! The keys by which members and clients of cache groups authenticate each other.
//!
//! What must stay true: the bytes of a key appear only in its record, and never in debug output or
//! in an error.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::json;

/// The secret of a key. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Its length in bytes.
    pub const BYTES: usize = 32;

    /// A secret of random bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One key of the volume's cache groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupKey {
    /// Its number: the first is 1, each later one is one higher.
    pub number: u64,
    /// When it was made, Unix seconds.
    pub created: i64,
    /// What those who know it share.
    pub secret: Secret,
}

/// The keys that are good now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupKeys {
    /// The one to begin with.
    pub newest: GroupKey,
    /// The one before it, which those still use that have not seen the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<GroupKey>,
}

impl GroupKeys {
    /// The first key.
    pub(crate) const fn first(created: i64, secret: Secret) -> Self {
        Self { newest: GroupKey { number: 1, created, secret }, before: None }
    }

    /// A new key in front; the newest stays as the one before it.
    #[must_use]
    pub(crate) fn changed(self, created: i64, secret: Secret) -> Self {
        let newest = GroupKey { number: self.newest.number + 1, created, secret };
        Self { newest, before: Some(self.newest) }
    }

    /// The key of that number, if it is still good.
    pub fn numbered(&self, number: u64) -> Option<&GroupKey> {
        std::iter::once(&self.newest).chain(&self.before).find(|key| key.number == number)
    }

    /// Reads the JSON; `None` if it is damaged. What a newer client added is ignored.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        json::parse(json)
    }

    /// The JSON to store.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        json::to_json(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_are_good() {
        let secret = |byte| Secret::new([byte; Secret::BYTES]);
        let one = GroupKeys::first(5, secret(171));
        let two = one.clone().changed(6, secret(172));
        let three = two.clone().changed(7, secret(173));
        assert_eq!(two.numbered(1), Some(&one.newest));
        assert_eq!(three.numbered(1), None);
        assert_eq!(three.numbered(2), Some(&two.newest));
        assert_eq!(three.numbered(3).map(|key| *key.secret.bytes()), Some([173; Secret::BYTES]));
        assert_eq!(GroupKeys::parse(&three.to_json()), Some(three.clone()));
        let shown = format!("{three:?} {three:#?}");
        assert!(!shown.contains("17"), "a secret is shown: {shown}");
    }
}
