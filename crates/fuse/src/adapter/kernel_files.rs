//! What the kernel has cached of each file: its length, at which the kernel appends, and its times.
//! Also records whether the kernel looked up the file in the trash.
//!
//! What must stay true: a length is here only if it was sent to the kernel, or if the kernel wrote
//! up to it. Times are those that were sent with the last attributes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Time};

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
    /// Its mtime and ctime.
    times: (Time, Time),
    /// The last lookup by the kernel was in the trash.
    trashed: bool,
    /// The thread whose open in the trash was last refused, and when.
    refused: Option<(u32, Instant)>,
}

/// What the kernel knows of files.
#[derive(Debug, Default)]
pub(super) struct KernelFiles {
    shards: [Mutex<FxHashMap<u64, File>>; SHARDS],
}

impl KernelFiles {
    fn shard(&self, ino: u64) -> &Mutex<FxHashMap<u64, File>> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    fn change(&self, ino: u64, change: impl FnOnce(&mut File)) {
        let mut shard = self.shard(ino).lock();
        if shard.len() >= SHARD_FILES && !shard.contains_key(&ino) {
            shard.clear();
        }
        change(shard.entry(ino).or_default());
    }

    /// Attributes of a file are sent to the kernel.
    pub(super) fn sent(&self, ino: u64, attr: &Attr) {
        self.change(ino, |file| (file.length, file.times) = (attr.length, (attr.mtime, attr.ctime)));
    }

    /// The kernel looked up a file: in the trash, or elsewhere.
    pub(super) fn found(&self, ino: u64, trashed: bool) {
        self.change(ino, |file| file.trashed = trashed);
    }

    /// The kernel wrote up to `end`.
    pub(super) fn wrote(&self, ino: u64, end: u64) {
        if let Some(file) = self.shard(ino).lock().get_mut(&ino) {
            file.length = end.max(file.length);
        }
    }

    /// Whether the content and the change time that the kernel has cached are those of `attr`.
    pub(super) fn has(&self, ino: u64, attr: &Attr) -> bool {
        let sent = (attr.length, (attr.mtime, attr.ctime));
        self.shard(ino).lock().get(&ino).is_some_and(|file| (file.length, file.times) == sent)
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
        self.change(ino, |file| {
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
    use sluice_types::{FileType, Ino};

    use super::*;

    fn attr(length: u64, sec: i64) -> Attr {
        let time = Time { sec, nsec: 0 };
        Attr { length, ..Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, time) }
    }

    #[test]
    fn the_kernel_believes_what_it_was_told_last_or_wrote() {
        let files = KernelFiles::default();
        assert!(!files.has_length(5, 0), "never told");
        files.sent(5, &attr(100, 1));
        assert!(files.has_length(5, 100) && !files.has_length(5, 200));
        assert!(files.has(5, &attr(100, 1)) && !files.has(5, &attr(100, 2)) && !files.has(6, &attr(100, 1)));
        files.wrote(5, 150);
        assert!(!files.has(5, &attr(100, 1)) && !files.has(5, &attr(150, 2)), "other times");
        files.wrote(5, 20);
        assert!(files.has_length(5, 150));
        files.found(5, true);
        files.sent(5, &attr(70, 2));
        assert!(files.has_length(5, 70) && files.knows_trashed(5, 1));
        files.found(5, false);
        assert!(!files.knows_trashed(5, 1), "it was taken out of the trash");
        assert!(files.knows_trashed(5, 1) && !files.knows_trashed(5, 2), "the same thread asks again");
    }

    #[test]
    fn memory_is_bounded() {
        let files = KernelFiles::default();
        (0..200_000).for_each(|ino| files.sent(ino, &attr(1, 1)));
        let kept: usize = files.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!(kept <= SHARDS * SHARD_FILES);
    }
}
