//! The length of each file that the kernel has cached. The kernel appends at this offset. Also
//! records whether the kernel looked up the file in the trash.
//!
//! What must stay true: a length is here only if it was sent to the kernel, or if the kernel wrote
//! up to it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Shards, each with a lock of its own.
const SHARDS: usize = 16;
/// Most files of a shard. If a file is not here, its next open in the trash costs one more round.
const SHARD_FILES: usize = 4096;

/// How long the kernel may take to repeat a refused open. It does so at once.
const AGAIN: Duration = Duration::from_secs(1);

/// One file.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    length: u64,
    /// The last lookup by the kernel was in the trash.
    trashed: bool,
    /// The thread whose open in the trash was last refused, and when.
    refused: Option<(u32, Instant)>,
}

/// What the kernel knows of files.
#[derive(Debug, Default)]
pub(super) struct Notice {
    shards: [Mutex<FxHashMap<u64, File>>; SHARDS],
}

impl Notice {
    fn shard(&self, ino: u64) -> &Mutex<FxHashMap<u64, File>> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    fn tell(&self, ino: u64, tell: impl FnOnce(&mut File)) {
        let mut shard = self.shard(ino).lock();
        if shard.len() >= SHARD_FILES && !shard.contains_key(&ino) {
            shard.clear();
        }
        tell(shard.entry(ino).or_default());
    }

    /// The length of a file is sent to the kernel.
    pub(super) fn length(&self, ino: u64, length: u64) {
        self.tell(ino, |file| file.length = length);
    }

    /// The kernel looked up a file: in the trash, or elsewhere.
    pub(super) fn found(&self, ino: u64, trashed: bool) {
        self.tell(ino, |file| file.trashed = trashed);
    }

    /// The kernel wrote up to `end`.
    pub(super) fn wrote(&self, ino: u64, end: u64) {
        if let Some(file) = self.shard(ino).lock().get_mut(&ino) {
            file.length = end.max(file.length);
        }
    }

    /// Whether the kernel has this length of a file cached.
    pub(super) fn has_length(&self, ino: u64, length: u64) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|file| file.length == length)
    }

    /// Whether the kernel knows that a file is in the trash. If not, it used a name that may belong
    /// to another file by now, and must look it up again. If it opens the file a second time for
    /// the same thread `pid`, it uses no such name (for example `/proc/self/fd/3`).
    pub(super) fn knows_trashed(&self, ino: u64, pid: u32) -> bool {
        let mut knows = false;
        self.tell(ino, |file| {
            let again = |(by, at): (u32, Instant)| by == pid && at.elapsed() < AGAIN;
            knows = file.trashed || file.refused.is_some_and(again);
            if !knows {
                file.refused = Some((pid, Instant::now()));
            }
        });
        knows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_believes_what_it_was_told_last_or_wrote() {
        let kernel_sizes = Notice::default();
        assert!(!kernel_sizes.has_length(5, 0), "never told");
        kernel_sizes.length(5, 100);
        assert!(kernel_sizes.has_length(5, 100) && !kernel_sizes.has_length(5, 200));
        kernel_sizes.wrote(5, 150);
        kernel_sizes.wrote(5, 20);
        assert!(kernel_sizes.has_length(5, 150));
        kernel_sizes.found(5, true);
        kernel_sizes.length(5, 70);
        assert!(kernel_sizes.has_length(5, 70) && kernel_sizes.knows_trashed(5, 1));
        kernel_sizes.found(5, false);
        assert!(!kernel_sizes.knows_trashed(5, 1), "it was taken out of the trash");
        assert!(
            kernel_sizes.knows_trashed(5, 1) && !kernel_sizes.knows_trashed(5, 2),
            "the same thread asks again"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let kernel_sizes = Notice::default();
        (0..200_000).for_each(|ino| kernel_sizes.length(ino, 1));
        let kept: usize = kernel_sizes.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!(kept <= SHARDS * SHARD_FILES);
    }
}
