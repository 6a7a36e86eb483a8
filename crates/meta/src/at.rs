//! A name in a directory.

use sluice_types::{Ino, Name};

/// A directory and a name in it, as most operations take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: Name,
}

impl At {
    /// `name` in `dir`.
    pub fn new(dir: Ino, name: Name) -> Self {
        Self { dir, name }
    }
}
