//! A read that an operation requests, and how much of the record must be the same at the commit.

use sluice_types::{Ino, Name};

use crate::{
    engine::{Hold, List, Read},
    schema::Key,
};

/// A read, and what the commit will compare of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The question to the engine.
    pub read: Read,
    /// Of [`Read::Follow`] the hold on the node; the entry is held too unless [`Hold::None`].
    /// [`Hold::Lock`] on [`Read::All`]: the collection is the same at the commit.
    pub hold: Hold,
}

impl Want {
    /// One record.
    pub fn get(key: Key, hold: Hold) -> Self {
        Self { read: Read::Get(key), hold }
    }

    /// The attributes of an inode.
    pub fn node(ino: Ino, hold: Hold) -> Self {
        Self::get(Key::Node(ino), hold)
    }

    /// An entry and the node it names.
    pub fn follow(dir: Ino, name: Name, hold: Hold) -> Self {
        Self { read: Read::Follow(dir, name), hold }
    }

    /// A small collection. Only of locks under [`Hold::Lock`], with the node locked too.
    pub fn all(list: List, hold: Hold) -> Self {
        Self { read: Read::All(list), hold }
    }

    /// What to ask the engine, and the hold of each, in the same order.
    pub(crate) fn split(wants: Vec<Self>) -> (Vec<Read>, Vec<Hold>) {
        wants.into_iter().map(|Self { read, hold }| (read, hold)).unzip()
    }

    /// Up to `limit` names of a directory.
    pub fn names(dir: Ino, limit: usize) -> Self {
        Self { read: Read::Names { dir, limit }, hold: Hold::None }
    }
}
