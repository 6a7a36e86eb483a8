//! Reads and writes of large local files without the kernel's page cache (`O_DIRECT`).
//!
//! A write through the page cache copies each byte into a new page, which costs more processor time
//! than everything else that this program does with the byte. A read costs the same again. A fast
//! disk reads and writes the buffer itself.
//!
//! A page of the page cache may cost even more: on a virtual machine that returned its memory to
//! the host, 100 KiB took 420 µs. So small files count, too, if the disk is fast.
//!
//! What must stay true: a disk is used in the way that is faster at the moment. A file system that
//! does not work without the page cache is used with it. What the page cache holds is read from
//! there.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Instant,
};

use crate::buffers::{ALIGNED, PAGE};

/// Files of this size are large. Their rates say nothing about those of small files.
pub const LARGE: usize = 1 << 20;
/// Smaller files go through the page cache.
pub(crate) const SMALLEST: usize = ALIGNED;
/// A disk that moves so many bytes per second is fast: nothing else is tried.
const FAST: u64 = 600_000_000;
/// On another one, each such file is moved in the way that seems the slower one, to learn its rate.
const PROBE: usize = 32;
/// As long as that way stays the slower one, twice as many files are between two of them, up to
/// so many: a file on a disk that is busy with the page cache takes long.
const RAREST: usize = 4096;

/// How files of similar size are moved, in one direction.
#[derive(Debug)]
pub struct Direct {
    /// Smaller files go through the page cache.
    smallest: usize,
    /// Most files that are moved directly at once. Others go through the page cache.
    most: usize,
    /// Whether the file system refused to.
    refused: AtomicBool,
    /// Files since the last one that was moved in the way that seems the slower one.
    since: AtomicUsize,
    /// Files until the next such one.
    interval: AtomicUsize,
    /// Whether the direct way seemed the better one for the last file.
    better: AtomicBool,
    directly: Way,
    cached: Way,
}

/// What is known of one way.
#[derive(Debug, Default)]
struct Way {
    /// Files under way.
    running: AtomicUsize,
    /// Bytes per second that it moved lately; 0 before the first.
    rate: AtomicU64,
}

/// A file that is being moved. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    direct: &'a Direct,
    /// Whether without the page cache.
    pub(crate) directly: bool,
    /// Whether this way seems the slower one.
    probes: bool,
    begun: Instant,
    /// Files that were under way on this way, itself included.
    together: usize,
}

impl Direct {
    /// At most so many files at once, of at least `smallest` bytes.
    pub fn new(most: usize, smallest: usize) -> Self {
        Self {
            smallest,
            most,
            refused: AtomicBool::new(false),
            // The first file on a slow disk tries the other way.
            since: AtomicUsize::new(PROBE),
            interval: AtomicUsize::new(PROBE),
            better: AtomicBool::new(true),
            directly: Way::default(),
            cached: Way::default(),
        }
    }

    /// Whether these bytes can be moved directly at all.
    pub(crate) fn suits(&self, bytes: &[u8]) -> bool {
        let whole_pages = bytes.len().is_multiple_of(PAGE) && bytes.as_ptr().align_offset(PAGE) == 0;
        AVAILABLE && bytes.len() >= self.smallest && whole_pages && !self.refused.load(Ordering::Relaxed)
    }

    /// Writes `data` at the position of a file, in the better way. The page cache gets what is left
    /// after the last whole page.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&self, file: &mut File, data: &[u8]) -> io::Result<()> {
        let (pages, rest) = data.split_at(data.len() / PAGE * PAGE);
        if !self.suits(pages) {
            return file.write_all(data);
        }
        let turn = self.begin();
        if turn.directly {
            let start = file.stream_position()?;
            let written = set(file, true).and_then(|()| file.write_all(pages));
            set(file, false)?;
            match written {
                Err(error) if is_refusal(&error) => {
                    turn.refused();
                    file.seek(SeekFrom::Start(start))?;
                    return file.write_all(data);
                }
                written => written?,
            }
        } else {
            file.write_all(pages)?;
        }
        turn.moved(pages.len());
        file.write_all(rest)
    }

    /// Begins to move bytes that suit, in the better way.
    pub(crate) fn begin(&self) -> Turn<'_> {
        let rate = self.directly.rate.load(Ordering::Relaxed);
        let sure = rate == 0 || rate >= FAST;
        let better = sure || is_better(rate, self.cached.rate.load(Ordering::Relaxed));
        if sure || self.better.swap(better, Ordering::Relaxed) != better {
            self.interval.store(PROBE, Ordering::Relaxed);
        }
        let since = self.since.fetch_add(1, Ordering::Relaxed) + 1;
        let probes = !sure && since >= self.interval.load(Ordering::Relaxed);
        let room = |running| (running < self.most).then_some(running + 1);
        let running = &self.directly.running;
        if better != probes
            && let Ok(others) = running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
        {
            return self.turn(true, probes, others + 1);
        }
        let together = self.cached.running.fetch_add(1, Ordering::Relaxed) + 1;
        // Without room, a file goes this way although it seems the better one.
        self.turn(false, probes && better, together)
    }

    fn turn(&self, directly: bool, probes: bool, together: usize) -> Turn<'_> {
        if probes {
            self.since.store(0, Ordering::Relaxed);
        }
        Turn { direct: self, directly, probes, begun: Instant::now(), together }
    }

    /// The way that seemed the slower one moved a file at this rate.
    fn probed(&self, directly: bool, rate: u64) {
        let slower = if directly {
            !is_better(rate, self.cached.rate.load(Ordering::Relaxed))
        } else {
            is_better(self.directly.rate.load(Ordering::Relaxed), rate)
        };
        let next = |interval: usize| Some(if slower { (interval * 2).min(RAREST) } else { PROBE });
        // The update never fails.
        let _ = self.interval.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// Whether files are to be moved directly, at these rates. That may be a bit slower, because it
/// needs less processor time.
fn is_better(directly: u64, cached: u64) -> bool {
    directly >= cached / 10 * 7
}

impl Turn<'_> {
    fn way(&self) -> &Way {
        if self.directly { &self.direct.directly } else { &self.direct.cached }
    }

    /// So many bytes were moved.
    pub(crate) fn moved(self, bytes: usize) {
        let way = self.way();
        let together = (self.together + way.running.load(Ordering::Relaxed)) as f64 / 2.0;
        let sample = (bytes as f64 * together / self.begun.elapsed().as_secs_f64().max(1e-9)) as u64;
        if self.probes {
            self.direct.probed(self.directly, sample);
        }
        let average = |rate: u64| Some(if rate == 0 { sample } else { rate / 4 * 3 + sample / 4 });
        // The update never fails.
        let _ = way.rate.fetch_update(Ordering::Relaxed, Ordering::Relaxed, average);
    }

    /// The file system does not work this way.
    pub(crate) fn refused(self) {
        self.direct.refused.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.way().running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an error says that the file system does not work this way.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::{
        fs::{OFlags, fcntl_getfl, fcntl_setfl},
        io::{Errno, ReadWriteFlags, preadv2},
    };

    use super::{File, io};

    pub(crate) const AVAILABLE: bool = true;

    /// From now on, reads and writes of an open file are direct, or go through the page cache.
    pub(crate) fn set(file: &File, direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(file)?;
        flags.set(OFlags::DIRECT, direct);
        Ok(fcntl_setfl(file, flags)?)
    }

    /// Whether the byte at an offset is known not to be in the page cache.
    pub(crate) fn is_cold(file: &File, offset: u64) -> bool {
        let mut byte = [0];
        let read = preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        matches!(read, Err(Errno::AGAIN))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{File, io};

    pub(crate) const AVAILABLE: bool = false;

    /// Not on this system.
    pub(crate) fn set(_: &File, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// This system does not say it.
    pub(crate) fn is_cold(_: &File, _: u64) -> bool {
        false
    }
}

use system::AVAILABLE;
pub(crate) use system::{is_cold, set};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::buffers::Buffer;

    fn block() -> Buffer {
        Buffer::with_length(4 << 20)
    }

    #[test]
    fn only_whole_pages_of_large_files_are_moved_directly() {
        let (direct, block) = (Direct::new(2, LARGE), block());
        assert_eq!(direct.suits(&block), AVAILABLE);
        assert!(!direct.suits(&block[1..]));
        assert!(!direct.suits(&block[..block.len() - 1]));
        assert!(!direct.suits(&block[..LARGE - PAGE]));
        direct.begin().refused();
        assert!(!direct.suits(&block));
    }

    /// Moves some files that each take so many seconds, and returns how many went directly.
    fn moves(direct: &Direct, files: usize, directly: u64, cached: u64) -> usize {
        let one = |_: &usize| {
            let mut turn = direct.begin();
            turn.begun -= Duration::from_secs(if turn.directly { directly } else { cached });
            let directly = turn.directly;
            turn.moved(1 << 30);
            directly
        };
        (0..files).filter(one).count()
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_is_tried_now_and_then() {
        let direct = Direct::new(4, LARGE);
        assert_eq!(moves(&direct, 100, 1, 1), 100, "fast enough");
        let taken = moves(&direct, 640, 10, 2);
        assert!(taken < 60, "{taken} went to the slow disk");
        let taken = moves(&direct, 1280, 10, 40);
        assert!(taken > 1100, "the page cache became slower: {taken}");
        let taken = moves(&direct, 640, 1, 1);
        assert!(taken > 600, "the disk is fast again: {taken}");
    }

    #[test]
    fn a_way_that_stays_slower_is_tried_ever_more_rarely() {
        let direct = Direct::new(4, LARGE);
        let taken = moves(&direct, 10_000, 10, 2);
        assert!((5..15).contains(&taken), "{taken} of 10,000 tried the slower way");
        let taken = moves(&direct, 2 * RAREST, 10, 2);
        assert!(taken > 0, "it is still tried");
        let taken = moves(&direct, 40, 10, 40);
        assert!(taken > 20, "the page cache became slower: {taken}");
        let taken = moves(&direct, 640, 10, 2);
        assert!(taken < 200, "the page cache is fast again, and soon tried: {taken}");
    }

    #[test]
    fn only_some_are_moved_directly_at_once() {
        let direct = Direct::new(4, LARGE);
        let all: Vec<_> = (0..6).map(|_| direct.begin()).collect();
        assert_eq!(all.iter().filter(|turn| turn.directly).count(), 4);
        drop(all);
        assert!(direct.begin().directly);
        assert_eq!(direct.cached.running.load(Ordering::Relaxed), 0);
    }
}
