//! Flags for buffers and the local cache.
//!
//! What must stay true: cache directories are made absolute before the working directory changes.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sluice_data::{CacheConfig, DataConfig, Eviction, UploadHours, Verify, WritebackConfig};

use super::UnusedFlags;
use crate::sizes;

/// Smallest buffer: below it writers wait for each other.
const LEAST_BUFFER: u64 = 32 << 20;
/// Shortest time after which unused blocks are dropped.
const LEAST_EXPIRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, ValueEnum)]
enum VerifyArg {
    None,
    Full,
    Shrink,
    Extend,
}

#[derive(Clone, Copy, ValueEnum)]
enum EvictionArg {
    None,
    #[value(name = "2-random")]
    TwoRandom,
    Lru,
}

/// What is kept in memory and on the local disk.
#[derive(Args)]
#[command(next_help_heading = "Data cache")]
pub(crate) struct CacheFlags {
    /// Memory for file data, cached blocks included: writers are slowed from there on and stopped
    /// at twice that, where reads may still take half of it more; a bare number is MiB
    #[arg(long, value_name = "SIZE", default_value = "300M", value_parser = sizes::mib)]
    buffer_size: u64,
    /// How far to read ahead of one reader; a bare number is MiB [default: 8 blocks]
    #[arg(long, value_name = "SIZE", value_parser = sizes::mib)]
    max_readahead: Option<u64>,
    /// Whole blocks to fetch in parallel after small reads; a block is fetched after the second one
    /// that was not cached
    #[arg(long, value_name = "N", default_value_t = 1)]
    prefetch: usize,
    /// Acknowledge what is on the local disk, and upload it later
    #[arg(long)]
    pub(crate) writeback: bool,
    /// With --writeback: upload blocks of at least this size at once all the same, 0 for none; a
    /// bare number is bytes
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = sizes::bytes)]
    writeback_threshold_size: u64,
    /// With --writeback: how long a block waits for its upload
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = sizes::duration)]
    upload_delay: Duration,
    /// With --writeback: upload only from one hour of the day to another, such as 22-6, by the
    /// machine's clock
    #[arg(long, value_name = "FROM-UNTIL", value_parser = hours)]
    upload_hours: Option<UploadHours>,
    /// Cache directories, colons between them, or `memory` [default: /var/jfsCache, or
    /// ~/.juicefs/cache for users]
    #[arg(long, value_name = "DIRS")]
    cache_dir: Option<String>,
    /// Permissions of cache files, octal
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = sizes::octal)]
    cache_mode: u16,
    /// Bytes in all cache directories; a bare number is MiB
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = sizes::mib)]
    cache_size: u64,
    /// Files in all cache directories, 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    cache_items: u64,
    /// Share of the disk that stays free
    #[arg(long, value_name = "RATIO", default_value_t = 0.1)]
    free_space_ratio: f64,
    /// Do not cache full blocks that were read from end to end, only what was read here and there
    #[arg(long)]
    cache_partial_only: bool,
    /// Cache full blocks that were written, too
    #[arg(long)]
    cache_large_write: bool,
    /// How cached blocks are checked when they are read
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "extend")]
    verify_cache_checksum: VerifyArg,
    /// What goes when the cache is full
    #[arg(long, value_enum, value_name = "POLICY", default_value = "2-random")]
    cache_eviction: EvictionArg,
    /// How often the cache directories are searched for files that others added or removed, 0 for
    /// once at the beginning
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = sizes::duration)]
    cache_scan_interval: Duration,
    /// Drop blocks that nobody used for so long, 1s or longer; 0 for never
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = sizes::duration)]
    cache_expire: Duration,
}

impl CacheFlags {
    /// Reports flags that have no effect.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        let without = |given: bool| given && !self.writeback;
        unused.ineffective("--upload-delay", without(!self.upload_delay.is_zero()), "--writeback");
        unused.ineffective("--upload-hours", without(self.upload_hours.is_some()), "--writeback");
        let threshold = self.writeback_threshold_size > 0;
        unused.ineffective("--writeback-threshold-size", without(threshold), "--writeback");
    }

    /// Applies the flags to the settings of the data path; `max_writes` is `--max-stage-write`.
    pub(crate) fn apply(&self, data: &mut DataConfig, max_writes: usize) -> Result<()> {
        data.buffer_size = self.buffer_size.max(LEAST_BUFFER);
        data.max_readahead = self.max_readahead.unwrap_or(0);
        data.prefetch = self.prefetch;
        data.cache = CacheConfig {
            dirs: self.dirs()?,
            size: self.cache_size,
            items: self.cache_items,
            free_space_ratio: self.free_space_ratio.clamp(0.0, 1.0),
            mode: u32::from(self.cache_mode),
            eviction: match self.cache_eviction {
                EvictionArg::None => Eviction::None,
                EvictionArg::TwoRandom => Eviction::TwoRandom,
                EvictionArg::Lru => Eviction::Lru,
            },
            verify: match self.verify_cache_checksum {
                VerifyArg::None => Verify::None,
                VerifyArg::Full => Verify::Full,
                VerifyArg::Shrink => Verify::Shrink,
                VerifyArg::Extend => Verify::Extend,
            },
            large_writes: self.cache_large_write,
            full_reads: !self.cache_partial_only,
            expire: if self.cache_expire.is_zero() {
                Duration::ZERO
            } else {
                self.cache_expire.max(LEAST_EXPIRY)
            },
            scan_interval: self.cache_scan_interval,
        };
        data.writeback = self.writeback.then(|| WritebackConfig {
            upload_delay: self.upload_delay,
            threshold: self.writeback_threshold_size.try_into().unwrap_or(u32::MAX),
            hours: self.upload_hours,
            max_writes,
        });
        Ok(())
    }

    /// The cache directories, none for `memory`.
    fn dirs(&self) -> Result<Vec<PathBuf>> {
        let default = default_dir();
        let text = self.cache_dir.as_deref().unwrap_or(&default);
        if text == "memory" {
            return Ok(Vec::new());
        }
        let mut dirs = Vec::new();
        for part in text.split(':').filter(|part| !part.is_empty()) {
            let absolute = std::path::absolute(part).with_context(|| format!("cache directory {part}"))?;
            if !part.contains(['*', '?', '[']) {
                dirs.push(absolute);
                continue;
            }
            let found =
                glob::glob(&absolute.to_string_lossy()).with_context(|| format!("--cache-dir {part}"))?;
            dirs.extend(found.filter_map(Result::ok).filter(|path| path.is_dir()));
        }
        anyhow::ensure!(!dirs.is_empty(), "--cache-dir {text} names no directory");
        Ok(dirs)
    }
}

/// `FROM-UNTIL`, or with a comma, as JuiceFS takes it.
fn hours(text: &str) -> Result<UploadHours, String> {
    let wrong = || format!("{text} is not two hours of the day, 0 to 23, such as 22-6");
    let (from, until) = text.split_once(['-', ',']).ok_or_else(wrong)?;
    let hour = |text: &str| text.trim().parse().ok().filter(|hour| *hour < 24);
    Ok(UploadHours { from: hour(from).ok_or_else(wrong)?, until: hour(until).ok_or_else(wrong)? })
}

fn default_dir() -> String {
    match env::var("HOME") {
        Ok(home) if !rustix::process::geteuid().is_root() => {
            Path::new(&home).join(".juicefs/cache").display().to_string()
        }
        _ => "/var/jfsCache".into(),
    }
}
