//! An entry: a name's inode, with attributes.

use std::time::Duration;

use sluice_types::{Attr, Ino};

/// A name that was looked up or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its inode.
    pub ino: Ino,
    /// Its attributes, unflushed writes of this client included.
    pub attr: Attr,
    /// How long the attributes may be cached.
    pub attr_ttl: Duration,
    /// How long the name may be cached.
    pub entry_ttl: Duration,
}
