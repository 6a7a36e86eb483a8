//! What can be put around any store: a store each, that passes on what it does not change.

mod prefixed;

pub use prefixed::Prefixed;
