//! Records whose values are JSON.

use serde::{Serialize, de::DeserializeOwned};

/// Reads a value; `None` if it is damaged.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    serde_json::from_slice(json).ok()
}

/// The JSON of a struct of strings, numbers and maps of them, which always serialises.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
