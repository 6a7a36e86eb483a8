//! Keys, pairs and ranges as they are stored.

use sluice_meta::engine::EngineError;

/// The result of a call of a store.
pub(crate) type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A key as stored.
pub type Raw = Vec<u8>;

/// A key and its value.
pub type Pair = (Raw, Vec<u8>);

/// A range of keys, the end excluded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first key.
    pub from: Raw,
    /// The first key after it.
    pub to: Raw,
}

impl Span {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        (&*self.from..&*self.to).contains(&key)
    }
}

/// Why a stored record cannot be decoded.
pub(crate) type Damage = &'static str;
