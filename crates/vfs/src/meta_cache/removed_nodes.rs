//! The last attributes of nodes that this client removed.
//!
//! What must stay true: an entry is used only after the engine returned that there is no such node.
//! So it never hides a node that exists.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sluice_types::{Attr, Ino};

/// Most nodes that are kept.
const MAX_NODES: usize = 4096;

/// Directories, pipes, devices and sockets that this client removed. If they are still open, the
/// kernel serves them itself, but it requests their attributes.
#[derive(Default)]
pub(super) struct RemovedNodes(Mutex<VecDeque<(Ino, Attr)>>);

impl RemovedNodes {
    /// A node was removed; these are its last attributes.
    pub(super) fn put(&self, ino: Ino, attr: Attr) {
        let mut removed = self.0.lock();
        if removed.len() >= MAX_NODES {
            removed.pop_front();
        }
        removed.push_back((ino, attr));
    }

    /// The last attributes of a node that was removed recently.
    pub(super) fn get(&self, ino: Ino) -> Option<Attr> {
        self.0.lock().iter().rev().find(|(removed, _)| *removed == ino).map(|(_, attr)| *attr)
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::{FileType, Time};

    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let removed = RemovedNodes::default();
        let attr = Attr::new(FileType::Fifo, 0o644, 0, 0, Ino::ROOT, Time::default());
        (0..=MAX_NODES as u64).for_each(|ino| removed.put(Ino(ino), attr));
        removed.put(Ino(7), Attr { mode: 0o600, ..attr });
        assert_eq!((removed.get(Ino(0)), removed.get(Ino(1))), (None, None));
        assert_eq!(removed.get(Ino(2)), Some(attr));
        assert_eq!(removed.get(Ino(7)).map(|attr| attr.mode), Some(0o600), "the newest counts");
    }
}
