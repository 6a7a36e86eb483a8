//! What `.stats` shows: one line a number, under the names that `JuiceFS` users know.
//!
//! What must stay true: a name keeps its meaning; numbers that are not counted are left out, not
//! zero.

use std::{fmt::Write as _, sync::atomic::Ordering};

use sluice_data::Histogram;

use crate::vfs::Vfs;

/// Lines of `.stats`.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "juicefs_{name} {value}");
    }

    fn histogram(&mut self, name: &str, histogram: &Histogram) {
        self.put(&format!("{name}_total"), histogram.count());
        self.put(&format!("{name}_sum"), histogram.total().as_secs_f64());
    }
}

impl Vfs {
    /// The text of `.stats`.
    pub fn stats_text(&self) -> String {
        let mut lines = Lines::default();
        self.volume_lines(&mut lines);
        self.fuse_lines(&mut lines);
        self.cache_lines(&mut lines);
        lines.0
    }

    fn volume_lines(&self, lines: &mut Lines) {
        let size = self.size_at(self.meta.env().used());
        lines.put("used_space", size.used);
        lines.put("used_inodes", size.inodes);
        lines.put("total_space", size.total);
        lines.put("total_inodes", size.inodes + size.free_inodes);
        lines.put("uptime", self.since.elapsed().as_secs_f64());
        if let Some((cpu, memory)) = process() {
            lines.put("cpu_usage", cpu);
            lines.put("memory", memory);
        }
    }

    fn fuse_lines(&self, lines: &mut Lines) {
        let (mut count, mut seconds) = (0, 0.0);
        for op in self.observed.totals().filter(|op| op.count > 0) {
            count += op.count;
            seconds += op.time.as_secs_f64();
            lines.put(&format!("fuse_ops_total_{}", op.name), op.count);
            lines.put(&format!("fuse_ops_durations_seconds_{}", op.name), op.time.as_secs_f64());
            lines.put(&format!("fuse_ops_errors_{}", op.name), op.errors);
        }
        lines.put("fuse_ops_durations_histogram_seconds_total", count);
        lines.put("fuse_ops_durations_histogram_seconds_sum", seconds);
        lines.put("fuse_read_size_bytes_sum", self.observed.read_bytes.load(Ordering::Relaxed));
        lines.put("fuse_written_size_bytes_sum", self.observed.written_bytes.load(Ordering::Relaxed));
        lines.put("fuse_open_handlers", self.handles.len());
        lines.put("open_files", self.cache().open_files());
        lines.put("bgjob_deletions_waiting", self.jobs.queue().len());
        let trash = self.meta.trash_backlog();
        lines.put("bgjob_trash_hours_waiting", trash.hours);
        lines.put("bgjob_trash_entries_removed", trash.removed);
    }

    fn cache_lines(&self, lines: &mut Lines) {
        let stats = self.data.stats();
        for (name, value) in [
            ("blockcache_blocks", stats.cache_blocks.get()),
            ("blockcache_bytes", stats.cache_bytes.get()),
            ("blockcache_hits", stats.memory_hits.get() + stats.cache_hits.get()),
            ("blockcache_hit_bytes", stats.memory_hit_bytes.get() + stats.cache_hit_bytes.get()),
            ("blockcache_miss", stats.cache_misses.get()),
            ("blockcache_miss_bytes", stats.cache_miss_bytes.get()),
            ("blockcache_writes", stats.cache_writes.get()),
            ("blockcache_write_bytes", stats.cache_write_bytes.get()),
            ("blockcache_drops", stats.cache_drops.get()),
            ("blockcache_evicts", stats.cache_evictions.get()),
            ("staging_blocks", stats.staged_blocks.get()),
            ("staging_block_bytes", stats.staged_bytes.get()),
            ("staging_block_errors", stats.staged_errors.get()),
            ("staging_write_bytes", stats.staged_write_bytes.get()),
            ("object_request_errors", stats.object_errors.get()),
            ("object_request_uploading", stats.uploading.get()),
            ("object_request_data_bytes_GET", stats.get_bytes.get()),
            ("object_request_data_bytes_PUT", stats.put_bytes.get()),
            ("used_buffer_size_bytes", self.data.buffered().0),
            ("store_cache_size_bytes", stats.memory_bytes.get()),
            ("compact_total", stats.compactions.get()),
            ("compact_bytes", stats.compacted_bytes.get()),
        ] {
            lines.put(name, value);
        }
        lines.histogram("blockcache_read_hist_seconds", &stats.cache_read_time);
        lines.histogram("blockcache_write_hist_seconds", &stats.cache_write_time);
        lines.histogram("object_request_durations_histogram_seconds_GET", &stats.get_time);
        lines.histogram("object_request_durations_histogram_seconds_PUT", &stats.put_time);
    }
}

/// Seconds of CPU time and bytes of memory of this process.
fn process() -> Option<(f64, u64)> {
    const TICKS: f64 = 100.0;
    const PAGE: u64 = 4096;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let cpu = (number(11)? + number(12)?) as f64 / TICKS;
    Some((cpu, number(21)? * PAGE))
}
