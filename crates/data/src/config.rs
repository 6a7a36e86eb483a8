//! The settings of the data path: sizes, limits, directories.
//!
//! What must stay true: `Default` is what `JuiceFS` users get without flags.

use std::{cmp::Ordering, path::PathBuf, sync::Arc, time::Duration};

use sluice_object::Compression;
use sluice_types::Timetable;

use crate::{error::DataError, peers::Peers};

const MIB: u64 = 1 << 20;

/// Settings of the data path of one mounted volume.
#[derive(Clone, Debug)]
pub struct DataConfig {
    /// The volume's UUID: names its directory below each cache directory.
    pub volume: String,
    /// Bytes of a full block (a setting of the volume).
    pub block_size: u32,
    /// Whether object names start with a hash (a setting of the volume).
    pub hash_prefix: bool,
    /// How blocks are compressed (a setting of the volume).
    pub compression: Compression,
    /// Memory in bytes for data that is not uploaded yet, for blocks under way and for blocks
    /// cached in memory. Writers slow down when this much is in use without the cache, and stop
    /// when twice as much is in use in all. Blocks that are being read take up to half of it more.
    /// Up to an eighth of it is kept for buffers that are idle for a moment.
    pub buffer_size: u64,
    /// How far to read ahead of a sequential reader, bytes; 0 for 8 blocks.
    pub max_readahead: u64,
    /// How many whole blocks to fetch at once after two small reads of each; 0 for none.
    pub prefetch: usize,
    /// Blocks uploaded at once.
    pub max_uploads: usize,
    /// Blocks downloaded at once.
    pub max_downloads: usize,
    /// Blocks deleted at once.
    pub max_deletes: usize,
    /// Bytes per second that the store lets through to readers; 0 for no limit. Warming up takes no
    /// more than a second's worth, or one block, ahead of who reads.
    pub download_rate: u64,
    /// Whether fsync waits until the store itself has synced all data, if a put alone does not:
    /// only `file` storage.
    pub sync_store: bool,
    /// How long requests to a store that does not answer are retried.
    pub give_up: Duration,
    /// Age at which unflushed data is uploaded although it is still being written to.
    pub flush_age: Duration,
    /// Age of the last write at which unflushed data is uploaded.
    pub flush_idle: Duration,
    /// Whether chunks of many records are compacted when they are read or written.
    pub auto_compact: bool,
    /// Local cache files.
    pub cache: CacheConfig,
    /// Other clients that share their caches, if any.
    pub peers: Option<Arc<dyn Peers>>,
    /// Acknowledge data once it is on the local disk, and upload later. Needs a cache directory.
    pub writeback: Option<WritebackConfig>,
    /// Where data is uploaded without a flush, instead of on a thread of its own: for many volumes
    /// in one process.
    pub timetable: Option<Timetable>,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            volume: String::new(),
            block_size: 4 * MIB as u32,
            hash_prefix: false,
            compression: Compression::None,
            buffer_size: 300 * MIB,
            max_readahead: 0,
            prefetch: 1,
            max_uploads: 20,
            max_downloads: 200,
            max_deletes: 10,
            download_rate: 0,
            sync_store: true,
            give_up: Duration::from_mins(5),
            flush_age: Duration::from_secs(5),
            flush_idle: Duration::from_secs(1),
            auto_compact: true,
            cache: CacheConfig::default(),
            peers: None,
            writeback: None,
            timetable: None,
        }
    }
}

impl DataConfig {
    /// Where blocks of the volume are staged, a directory for each cache directory.
    pub(crate) fn staging_dirs(&self) -> Vec<PathBuf> {
        self.cache.dirs.iter().map(|dir| dir.join(&self.volume).join("rawstaging")).collect()
    }

    /// Refuses settings that cannot work.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let wrong = if self.block_size == 0 || u64::from(self.block_size) > 16 * MIB {
            "the volume's block size has to be between 1 byte and 16 MiB"
        } else if self.buffer_size == 0 {
            "the buffer size has to be more than 0 (--buffer-size)"
        } else if self.writeback.is_some() && self.cache.dirs.is_empty() {
            "write-back needs a cache directory (--cache-dir)"
        } else {
            return Ok(());
        };
        Err(DataError::Config(wrong.into()))
    }

    /// Most whole blocks that are fetched at once: at least two, else so many that they take at
    /// most half the buffer.
    pub(crate) fn wholes(&self) -> usize {
        (self.buffer_size / 2 / u64::from(self.block_size)).max(2) as usize
    }

    /// Most blocks that are warmed up at once.
    pub(crate) fn warms(&self) -> usize {
        match self.download_rate {
            0 => self.wholes(),
            rate => self.wholes().min((rate / u64::from(self.block_size)).max(1) as usize),
        }
    }

    /// [`Self::max_readahead`] with its default filled in.
    pub(crate) fn readahead(&self) -> u64 {
        if self.max_readahead == 0 { 8 * u64::from(self.block_size) } else { self.max_readahead }
    }
}

/// Settings of the local cache files.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Cache directories; the volume's UUID is appended to each. None: blocks are only cached in
    /// memory.
    pub dirs: Vec<PathBuf>,
    /// Bytes in all directories together.
    pub size: u64,
    /// Files in all directories together; 0 for no limit.
    pub items: u64,
    /// Share of each file system, in bytes and inodes, that stays free.
    pub free_space_ratio: f64,
    /// Permissions of cache files.
    pub mode: u32,
    /// Which block is evicted if there is no room.
    pub eviction: Eviction,
    /// How much is checked on each read.
    pub verify: Verify,
    /// Whether full blocks written by this client are cached too (small ones always are).
    pub large_writes: bool,
    /// Whether full blocks are cached that were read from end to end. Small blocks, and those that
    /// were read here and there, always are.
    pub full_reads: bool,
    /// Blocks that were not used for this long are dropped; zero for never.
    pub expire: Duration,
    /// How often the directories are searched for files that others added or removed; zero for
    /// once, at the beginning.
    pub scan_interval: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            dirs: Vec::new(),
            size: 100 << 30,
            items: 0,
            free_space_ratio: 0.1,
            mode: 0o600,
            eviction: Eviction::TwoRandom,
            verify: Verify::Extend,
            large_writes: false,
            full_reads: true,
            expire: Duration::ZERO,
            scan_interval: Duration::from_hours(1),
        }
    }
}

/// Which cached block is evicted if there is no room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The new one is not cached.
    None,
    /// The older of two picked at random.
    TwoRandom,
    /// The least recently used one of a large random sample.
    Lru,
}

/// How much of a cached block is checked against its checksums when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Nothing.
    None,
    /// Reads of whole blocks.
    Full,
    /// The 32 KiB pages that lie completely in the range that is read.
    Shrink,
    /// All 32 KiB pages that the read touches: the read is extended to whole pages.
    Extend,
}

/// Settings of write-back.
#[derive(Clone, Debug, Default)]
pub struct WritebackConfig {
    /// How long a block stays before it is uploaded.
    pub upload_delay: Duration,
    /// Blocks of at least this many bytes are uploaded at once instead; 0 for none.
    pub threshold: u32,
    /// Blocks written to the local disk at the same moment; 0 for no limit. Above, blocks are
    /// uploaded directly.
    pub max_writes: usize,
    /// Hours of the day in which blocks are uploaded; `None` for all.
    pub hours: Option<UploadHours>,
}

/// Hours of the day, in the machine's time zone: from the beginning of one to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadHours {
    /// The first hour, 0 to 23.
    pub from: u8,
    /// The hour that is the first outside; before `from` it is one of the next day.
    pub until: u8,
}

impl UploadHours {
    /// Whether `hour` is one of them; all are if both ends are the same.
    pub(crate) fn contain(self, hour: u8) -> bool {
        match self.from.cmp(&self.until) {
            Ordering::Equal => true,
            Ordering::Less => (self.from..self.until).contains(&hour),
            Ordering::Greater => hour >= self.from || hour < self.until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_a_limit_warming_up_takes_a_second_ahead_or_one_block() {
        let warms = |download_rate| {
            DataConfig { block_size: 4 << 20, buffer_size: 300 << 20, download_rate, ..DataConfig::default() }
                .warms()
        };
        assert_eq!([0, 1, 1 << 20, 10 << 20, 1 << 40].map(warms), [37, 1, 1, 2, 37]);
    }

    #[test]
    fn hours_may_go_over_midnight() {
        let of = |from, until| {
            let hours = UploadHours { from, until };
            (0..24).filter(|hour| hours.contain(*hour)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 4), [1, 2, 3]);
        assert_eq!(of(22, 2), [0, 1, 22, 23]);
        assert_eq!(of(5, 5).len(), 24);
    }
}
