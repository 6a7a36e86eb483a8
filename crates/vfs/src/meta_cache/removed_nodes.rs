//! Last attributes of nodes that were removed here.
//!
//! What must stay true: an entry is only asked for after the engine said that there is no such
//! node, so it never hides a node that exists.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sluice_types::{Attr, Ino};

/// Nodes that are remembered.
const MOST: usize = 4096;

/// Directories, pipes, devices and sockets that were removed here. The kernel serves those that are
/// still open without asking, but for their attributes.
#[derive(Default)]
pub(super) struct RemovedNodes(Mutex<VecDeque<(Ino, Attr)>>);

impl RemovedNodes {
    /// A node was removed; these are its last attributes.
    pub(super) fn put(&self, ino: Ino, attr: Attr) {
        let mut removed = self.0.lock();
        if removed.len() >= MOST {
            removed.pop_front();
        }
        removed.push_back((ino, attr));
    }

    /// The last attributes of a node that was removed lately.
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
        (0..=MOST as u64).for_each(|ino| removed.put(Ino(ino), attr));
        removed.put(Ino(7), Attr { mode: 0o600, ..attr });
        assert_eq!((removed.get(Ino(0)), removed.get(Ino(1))), (None, None));
        assert_eq!(removed.get(Ino(2)), Some(attr));
        assert_eq!(removed.get(Ino(7)).map(|attr| attr.mode), Some(0o600), "the newest counts");
    }
}
