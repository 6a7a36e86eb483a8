//! Collects the metrics of all parts of a mount.

use std::sync::Arc;

use sluice_meta::{Interrupt, MetaStats};
use sluice_types::metrics::{Distribution, Histogram};

use crate::{
    metrics::{Families, Kind, Labels, Value, add_process, prometheus, stats},
    observe::errno_name,
    timed_query::TIMEOUT,
    vfs::Vfs,
};

/// Storage class of objects whose class nobody chose.
const DEFAULT_CLASS: &str = "STANDARD";

impl Vfs {
    /// The text of `.stats`.
    pub fn stats_text(&self) -> String {
        stats(self.metrics())
    }

    /// All numbers in the text format of Prometheus. Each sample gets the labels `common`. Besides
    /// those of `.stats` there are some for which the engine is asked; if that does not answer
    /// soon, they are left out.
    pub fn prometheus_text(&self, common: &[(String, String)]) -> String {
        let mut families = self.metrics();
        self.trash_metrics(&mut families);
        prometheus(families, common)
    }

    fn metrics(&self) -> Families {
        let mut families = Families::default();
        self.volume_metrics(&mut families);
        add_process(&mut families);
        self.request_metrics(&mut families);
        metadata(&mut families, self.meta.stats());
        self.cache_metrics(&mut families);
        self.object_metrics(&mut families);
        self.background_metrics(&mut families);
        if let Some(more) = &self.config.metrics {
            more(&mut families);
        }
        families
    }

    fn volume_metrics(&self, families: &mut Families) {
        let size = self.size_at(self.meta.env().used());
        families.gauge(("juicefs_used_space", "Bytes of the volume in use."), size.used as f64);
        families.gauge(("juicefs_used_inodes", "Inodes of the volume in use."), size.inodes as f64);
        families.gauge(("juicefs_total_space", "Bytes that the volume can hold."), size.total as f64);
        let inodes = (size.inodes + size.free_inodes) as f64;
        families.gauge(("juicefs_total_inodes", "Inodes that the volume can hold."), inodes);
        let uptime = self.since.elapsed().as_secs_f64();
        families.gauge(("juicefs_uptime", "Seconds since this client started."), uptime);
        let subdir = self.config.shown.get("Meta").and_then(|meta| meta.get("Subdir")?.as_str());
        families.add(
            ("juicefs_subdir_info", "1, with the directory of the volume that is mounted (empty: all)."),
            Kind::Gauge,
            vec![(vec![("subdir", subdir.unwrap_or_default().to_owned())], Value::Number(1.0))],
        );
    }

    fn request_metrics(&self, families: &mut Families) {
        let observed = &self.observed;
        let ops: Vec<_> = observed.totals().filter(|op| op.count > 0).collect();
        let seconds = ops.iter().map(|op| op.time.as_secs_f64());
        let mut times = observed.times.read();
        // The sum is kept by operation only.
        times.sum = seconds.clone().sum();
        families.values(
            ("juicefs_fuse_ops_durations_histogram_seconds", "Times of requests of the kernel."),
            times,
        );
        families.counters(
            ("juicefs_fuse_ops_total", "Requests of the kernel."),
            "method",
            ops.iter().map(|op| (op.name, op.count as f64)),
        );
        families.counters(
            ("juicefs_fuse_ops_durations_seconds", "Time spent in requests of the kernel, in seconds."),
            "method",
            ops.iter().map(|op| op.name).zip(seconds),
        );
        families.counters(
            ("sluice_fuse_errors_total", "Requests of the kernel that were answered with an error."),
            "method",
            ops.iter().map(|op| (op.name, op.errors as f64)),
        );
        families.counters(
            ("juicefs_fuse_ops_io_errors", "Errors that requests of the kernel were answered with."),
            "errno",
            observed.errors().map(|(errno, count)| (errno_name(errno), count as f64)),
        );
        families.histogram(("juicefs_fuse_read_size_bytes", "Sizes of reads."), &observed.read);
        families.histogram(("juicefs_fuse_written_size_bytes", "Sizes of writes."), &observed.written);
        let handles = self.handles.len() as f64;
        families.gauge(("juicefs_fuse_open_handlers", "Open files and directories."), handles);
        let files = self.cache().open_files() as f64;
        families.gauge(("sluice_open_files", "Files that are open, each counted once."), files);
    }

    fn cache_metrics(&self, families: &mut Families) {
        let stats = self.data.stats();
        let both = |memory: u64, disk: u64| (memory + disk) as f64;
        let hits = both(stats.memory_hits.get(), stats.cache_hits.get());
        let hit_bytes = both(stats.memory_hit_bytes.get(), stats.cache_hit_bytes.get());
        families.counter(("juicefs_blockcache_hits", "Reads of blocks answered from the cache."), hits);
        families.counter(("juicefs_blockcache_hit_bytes", "Bytes read from the cache."), hit_bytes);
        for (title, counter) in [
            (
                ("juicefs_blockcache_miss", "Reads of blocks that the cache did not have."),
                &stats.cache_misses,
            ),
            (
                ("juicefs_blockcache_miss_bytes", "Bytes that the cache did not have."),
                &stats.cache_miss_bytes,
            ),
            (("juicefs_blockcache_writes", "Blocks written to the cache."), &stats.cache_writes),
            (("juicefs_blockcache_write_bytes", "Bytes written to the cache."), &stats.cache_write_bytes),
            (("juicefs_blockcache_drops", "Blocks that the cache did not take."), &stats.cache_drops),
            (("juicefs_blockcache_evicts", "Blocks that made room for others."), &stats.cache_evictions),
            (("sluice_blockcache_damaged_total", "Cached blocks found damaged."), &stats.cache_damaged),
            (("juicefs_staging_block_errors", "Failures to stage or upload blocks."), &stats.staged_errors),
            (("juicefs_staging_write_bytes", "Bytes staged on the local disk."), &stats.staged_write_bytes),
            (("sluice_prefetched_blocks_total", "Blocks fetched ahead of reads."), &stats.prefetches),
        ] {
            families.count(title, counter);
        }
        families.counter(
            ("juicefs_staging_block_delay_seconds", "Time that uploaded blocks were staged, in seconds."),
            stats.staged_delay.time().as_secs_f64(),
        );
        for (title, value) in [
            (("juicefs_blockcache_blocks", "Blocks in the cache."), stats.cache_blocks.get()),
            (("juicefs_blockcache_bytes", "Bytes in the cache."), stats.cache_bytes.get()),
            (
                ("juicefs_staging_blocks", "Staged blocks that wait for their upload."),
                stats.staged_blocks.get(),
            ),
            (("juicefs_staging_block_bytes", "Bytes of staged blocks."), stats.staged_bytes.get()),
            (("juicefs_staging_writing_blocks", "Blocks being staged now."), stats.staging.get()),
            (("juicefs_used_buffer_size_bytes", "Memory used by buffers."), self.data.buffered().0),
            (("juicefs_store_cache_size_bytes", "Memory used by the cache."), stats.memory_bytes.get()),
        ] {
            families.gauge(title, value as f64);
        }
        let times = &stats.times;
        families.histogram(
            ("juicefs_blockcache_read_hist_seconds", "Times of reads from local cache files."),
            &times.cache_read,
        );
        families.histogram(
            ("juicefs_blockcache_write_hist_seconds", "Times of writes of local cache files."),
            &times.cache_write,
        );
        families.histogram(
            ("juicefs_compact_size_histogram_bytes", "Sizes of what compactions wrote."),
            &times.compacted,
        );
    }

    fn object_metrics(&self, families: &mut Families) {
        let stats = self.data.stats();
        let class = match self.config.storage_class.as_str() {
            "" => DEFAULT_CLASS,
            chosen => chosen,
        };
        // Who deletes an object need not know its class.
        let labels = |method: &str| -> Labels {
            let class = if method == "DELETE" { "" } else { class };
            vec![("method", method.to_owned()), ("storage_class", class.to_owned())]
        };
        let times = [("GET", &stats.times.get), ("PUT", &stats.times.put), ("DELETE", &stats.times.delete)];
        families.add(
            ("juicefs_object_request_durations_histogram_seconds", "Times of requests to the object store."),
            Kind::Histogram,
            times.map(|(method, times)| (labels(method), Value::Values(times.read()))).into(),
        );
        let bytes = [("GET", stats.get_bytes.get()), ("PUT", stats.put_bytes.get())];
        families.add(
            ("juicefs_object_request_data_bytes", "Bytes read from and written to the object store."),
            Kind::Counter,
            bytes.map(|(method, bytes)| (labels(method), Value::Number(bytes as f64))).into(),
        );
        families.count(
            ("juicefs_object_request_errors", "Requests to the object store that failed."),
            &stats.object_errors,
        );
        families.gauge(
            ("juicefs_object_request_uploading", "Blocks being uploaded now."),
            stats.uploading.get() as f64,
        );
    }

    fn trash_metrics(&self, families: &mut Families) {
        let meta = Arc::downgrade(&self.meta);
        let query = move || meta.upgrade()?.trash_backlog(&Interrupt::never()).ok();
        let Some(trash) = self.trash.get(TIMEOUT, query) else { return };
        for (title, number) in [
            (
                (
                    "sluice_trash_directories",
                    "Directories of the trash, one for each hour of which something is there.",
                ),
                trash.hours,
            ),
            (
                ("sluice_trash_overdue_directories", "Those directories of the trash that should be gone."),
                trash.overdue,
            ),
            (("sluice_trash_oldest_seconds", "Age of the oldest hour in the trash."), trash.oldest),
        ] {
            families.gauge(title, number as f64);
        }
    }

    fn background_metrics(&self, families: &mut Families) {
        families.gauge(
            ("sluice_deletions_waiting", "Removed files and slices that wait to be deleted."),
            self.jobs.queue().len() as f64,
        );
        let trash = self.meta.trash_expiry();
        families.gauge(
            (
                "sluice_trash_directories_waiting",
                "Directories of the trash that this client is about to delete.",
            ),
            trash.hours as f64,
        );
        families.counter(
            ("sluice_trash_entries_removed_total", "Entries of the trash that this client deleted."),
            trash.removed as f64,
        );
    }
}

fn metadata(families: &mut Families, stats: &MetaStats) {
    let named: Vec<_> = stats.by_name.iter().map(|(name, counts)| (method(name), counts)).collect();
    families.counters(
        ("juicefs_meta_ops_total", "Operations on metadata."),
        "method",
        named.iter().map(|(name, counts)| (name, counts.count.get() as f64)),
    );
    families.counters(
        ("juicefs_meta_ops_duration_seconds", "Time spent in operations on metadata, in seconds."),
        "method",
        named.iter().map(|(name, counts)| (name, counts.nanos.time().as_secs_f64())),
    );
    // Also the operations that never ran again, so that a rate is known before the first.
    families.counters(
        ("juicefs_transaction_restart", "Operations that ran again since others changed what they saw."),
        "method",
        stats.by_name.iter().map(|(name, _)| {
            let restarts = stats.restarts.of(name).map_or(0, |counts| counts.count.get());
            (method(name), restarts as f64)
        }),
    );
    families.counters(
        ("sluice_meta_retries_total", "Batches and reads that were tried again."),
        "cause",
        stats.retries.causes().map(|(cause, counter)| (cause, counter.get() as f64)),
    );
    let histograms: [(_, &Histogram); 6] = [
        (
            (
                "juicefs_transaction_durations_histogram_seconds",
                "Times of batches, up to the end of the commit.",
            ),
            &stats.commits,
        ),
        (
            ("juicefs_meta_ops_durations_histogram_seconds", "Times of operations on metadata."),
            &stats.operations,
        ),
        (
            ("sluice_batch_queue_seconds", "Time that operations waited until their batch began."),
            &stats.queued,
        ),
        (("sluice_batch_operations", "Operations in each batch."), &stats.batched),
        (("sluice_meta_read_seconds", "Times of reads of metadata outside batches."), &stats.reads),
        (("sluice_lock_wait_seconds", "Times of waits for locks of files."), &stats.lock_waits),
    ];
    for (title, histogram) in histograms {
        let values: Distribution = histogram.read();
        families.values(title, values);
    }
    families.gauge(
        ("sluice_lock_waiters", "Programs that wait for a lock of a file now."),
        stats.lock_waiters.get() as f64,
    );
}

/// The name that `JuiceFS` has for an operation, or ours.
fn method(name: &'static str) -> &'static str {
    match name {
        "lookup" => "Lookup",
        "getattr" => "GetAttr",
        "setattr" => "SetAttr",
        "readlink" => "ReadLink",
        "create" => "Mknod",
        "unlink" => "Unlink",
        "rmdir" => "Rmdir",
        "rename" => "Rename",
        "link" => "Link",
        "read" => "Read",
        "write" => "Write",
        "truncate" => "Truncate",
        "fallocate" => "Fallocate",
        "copy_file_range" => "CopyFileRange",
        "clone" => "Clone",
        "getxattr" => "GetXattr",
        "listxattr" => "ListXattr",
        "setxattr" => "SetXattr",
        "removexattr" => "RemoveXattr",
        "getfacl" => "GetFacl",
        "setfacl" => "SetFacl",
        other => other,
    }
}
