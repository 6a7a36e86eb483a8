//! A map from a parent and a name to a directory, and from a directory to its parent.
//!
//! What must stay true: a hint may be wrong. The engine checks it, or it is only shown as the inode
//! of `..`.

use std::hash::{Hash, Hasher};

use parking_lot::Mutex;
use rustc_hash::FxHasher;
use sluice_types::{Ino, Name};

/// Places for hints.
const PLACES: usize = 4096;

/// The newest hint in each of a few thousand places.
pub(super) struct DirHints(Mutex<Places>);

struct Places {
    children: Box<[(u64, Ino)]>,
    parents: Box<[(Ino, Ino)]>,
}

impl Default for DirHints {
    fn default() -> Self {
        let children = vec![(0, Ino::NONE); PLACES].into();
        let parents = vec![(Ino::NONE, Ino::NONE); PLACES].into();
        Self(Mutex::new(Places { children, parents }))
    }
}

impl DirHints {
    /// `name` in `dir` is the directory `ino`.
    pub(super) fn put(&self, dir: Ino, name: &[u8], ino: Ino) {
        let hash = place(dir, name);
        let mut places = self.0.lock();
        places.children[hash as usize % PLACES] = (hash, ino);
        places.parents[ino.0 as usize % PLACES] = (ino, dir);
    }

    /// The directory that `name` in `dir` was.
    pub(super) fn child(&self, dir: Ino, name: &Name) -> Option<Ino> {
        let hash = place(dir, name);
        let (known, ino) = self.0.lock().children[hash as usize % PLACES];
        (known == hash && ino != Ino::NONE).then_some(ino)
    }

    /// The parent of `ino` when it was last looked up.
    pub(super) fn parent(&self, ino: Ino) -> Option<Ino> {
        let (known, dir) = self.0.lock().parents[ino.0 as usize % PLACES];
        (known == ino && dir != Ino::NONE).then_some(dir)
    }
}

fn place(dir: Ino, name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    (dir, name).hash(&mut hasher);
    let hash = hasher.finish();
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_by_place() {
        let hints = DirHints::default();
        let name = Name::new(b"a").unwrap();
        hints.put(Ino(1), &name, Ino(9));
        assert_eq!((hints.child(Ino(1), &name), hints.parent(Ino(9))), (Some(Ino(9)), Some(Ino(1))));
        assert_eq!((hints.child(Ino(2), &name), hints.parent(Ino(8))), (None, None));
    }
}
