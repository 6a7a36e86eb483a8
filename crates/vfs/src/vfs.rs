//! A mounted volume: metadata and data joined.
//!
//! What must stay true: any number of threads may call everything here, and each call blocks until
//! it is done.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use sluice_data::DataStore;
use sluice_meta::{Interrupt, Meta, TrashBacklog};
use sluice_types::{Attr, Caller, FsError, FsResult, Ino, Time};

use crate::{
    accesslog::AccessLog,
    config::VfsConfig,
    entry::Entry,
    handles::Handles,
    index::MetaIndex,
    internal::Internals,
    invalidate::OnInvalidate,
    jobs::Jobs,
    journal::PreviousState,
    meta_cache::{MetaCache, Moment, OpenFile},
    observe::Observed,
    timed_query::TimedQuery,
};

/// How long the end of a mount waits for compactions and deletions that are under way.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if a successor takes over, for which programs wait.
pub(crate) const SETTLE_TIMEOUT_OF_UPGRADE: Duration = Duration::from_secs(2);
/// How long an answer waits until the kernel has dropped stale pages. The kernel may itself wait
/// for reads that wait for the object store.
const PAGES_TIMEOUT: Duration = Duration::from_millis(200);

/// A mounted volume.
pub struct Vfs {
    pub(crate) meta: Arc<Meta>,
    pub(crate) index: Arc<MetaIndex>,
    pub(crate) data: Arc<DataStore>,
    pub(crate) config: VfsConfig,
    pub(crate) handles: Handles,
    pub(crate) internals: Internals,
    pub(crate) log: Arc<AccessLog>,
    pub(crate) jobs: Jobs,
    pub(crate) observed: Observed,
    pub(crate) since: Instant,
    pub(crate) on_invalidate: OnceLock<OnInvalidate>,
    /// How much is in use: bytes and inodes.
    pub(crate) used: TimedQuery<(i64, i64)>,
    /// Attributes of the root, if it is there.
    pub(crate) root_attr: TimedQuery<Option<Attr>>,
    /// What lies in the trash.
    pub(crate) trash: TimedQuery<TrashBacklog>,
    /// What the dead process did that this one succeeds.
    pub(crate) past: OnceLock<PreviousState>,
}

impl Vfs {
    /// Joins the metadata behind `index` and the data store that was opened with it, and starts the
    /// background work.
    pub fn new(index: Arc<MetaIndex>, data: DataStore, config: VfsConfig) -> Arc<Self> {
        let meta = Arc::clone(&index.meta);
        let data = Arc::new(data);
        if let Some(journal) = &config.journal {
            index.keep_journal(Arc::clone(journal));
        }
        let jobs = Jobs::start(&meta, &data, &config);
        let queue = jobs.queue();
        index.on_unused(move |slices| queue.slices(slices));
        if !config.open_ttl.is_zero() {
            index.cache.keep_closed_files();
        }
        index.cache.serve(config.root, meta.follows_others().then(|| config.longest_ttl()));
        Arc::new(Self {
            internals: Internals::new(&config),
            log: Arc::default(),
            handles: Handles::default(),
            meta,
            index,
            data,
            config,
            jobs,
            observed: Observed::default(),
            since: Instant::now(),
            on_invalidate: OnceLock::new(),
            past: OnceLock::new(),
            used: TimedQuery::default(),
            root_attr: TimedQuery::default(),
            trash: TimedQuery::default(),
        })
    }

    /// The metadata underneath.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// The data path underneath.
    pub fn data(&self) -> &Arc<DataStore> {
        &self.data
    }

    /// The settings.
    pub fn config(&self) -> &VfsConfig {
        &self.config
    }

    /// The directory that is shown as the root.
    pub fn root(&self) -> Ino {
        self.config.root
    }

    /// The identity under which operations of a user run, after squashing.
    pub fn caller(&self, uid: u32, gid: u32, pid: u32) -> Caller {
        let mut caller = Caller { pid, ..Caller::user(uid, gid) };
        if let Some(squash) = self.config.squash
            && (squash.all || uid == 0)
        {
            // The supplementary groups are dropped, too.
            caller = Caller { groups: vec![squash.gid], pid, ..Caller::user(squash.uid, squash.gid) };
        }
        caller
    }

    /// Flushes every file, makes all data durable, and ends the session. With `staged`, it also
    /// waits that long until staged blocks are uploaded. No call may follow.
    ///
    /// # Errors
    /// The first failure to store data, or to make it durable; also that staged blocks were lost.
    /// All other data was stored.
    pub fn close(&self, staged: Option<Duration>) -> FsResult<()> {
        self.internals.control.ended.set();
        let flushed = self.data.flush_all();
        if let Some(timeout) = staged {
            let left = self.data.flush_staging(timeout);
            if left > 0 {
                tracing::warn!("{left} blocks are only on the local disk; the next mount here uploads them");
            }
        }
        self.settle(SETTLE_TIMEOUT);
        self.jobs.stop();
        // The metadata must not survive a power cut without its data. A reader does not wait for
        // the disk.
        let wrote = self.observed.written.count() > 0;
        let hardened = if wrote { self.data.harden() } else { Ok(()) };
        let closed = self.meta.close();
        flushed.and(hardened).and(closed)
    }

    /// Waits for work in the background that would leave objects behind if the process ended now.
    pub(crate) fn settle(&self, timeout: Duration) {
        if !self.data.settle(timeout) {
            tracing::warn!("a compaction or deletion is still under way; `sluice gc` deletes what it leaves");
        }
    }

    pub(crate) fn cache(&self) -> &MetaCache {
        &self.index.cache
    }

    pub(crate) fn now(&self) -> Time {
        self.config.clock.now()
    }

    /// The umask to use: that of the mount, else that of the caller.
    pub(crate) fn umask(&self, asked: u16) -> u16 {
        self.config.umask.unwrap_or(asked)
    }

    /// Fails on read-only mounts.
    pub(crate) fn writable(&self) -> FsResult<()> {
        if self.meta.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Attributes that were requested from the engine at `moment`, combined with this client's
    /// later changes, and with data that it has not flushed yet. No trip, but for one if a change
    /// by this client ended meanwhile and another client's change may have come after it.
    pub(crate) fn shown(&self, ino: Ino, attr: Attr, moment: Moment, interrupt: &Interrupt) -> Attr {
        if !attr.is_file() {
            return attr;
        }
        // Read the end of unflushed data first: if it is committed after that, the attributes from
        // `learn` include it.
        let end = self.data.dirty_end(ino);
        let known = self.cache().learn(ino, attr, moment);
        if self.cache().pages_seen(ino, &attr, moment) {
            // Whoever sees that the file changed finds its new content.
            self.cache().await_pages_dropped(ino, PAGES_TIMEOUT);
        }
        let attr = known.unwrap_or_else(|| self.fetch(ino, interrupt).unwrap_or(attr));
        self.with_dirty(ino, attr, end)
    }

    /// Attributes that include unflushed data up to `end`.
    fn with_dirty(&self, ino: Ino, mut attr: Attr, end: u64) -> Attr {
        if end > 0
            && let Some(file) = self.cache().file(ino)
        {
            attr.length = attr.length.max(end);
            attr.mtime = attr.mtime.max(file.written());
            attr.ctime = attr.ctime.max(file.written());
        }
        attr
    }

    /// Attributes of an open file that this client learned within `ttl`.
    pub(crate) fn recent_of_open(&self, ino: Ino, ttl: Duration) -> Option<(Attr, Duration)> {
        let file = self.cache().file(ino)?;
        let end = self.data.dirty_end(ino);
        let (attr, left) = file.recent(ttl)?;
        Some((self.with_dirty(ino, attr, end), left))
    }

    /// Length of an open file, what is not flushed included.
    pub(crate) fn length(&self, file: &OpenFile, interrupt: &Interrupt) -> FsResult<u64> {
        let end = self.data.dirty_end(file.ino);
        let attr = match file.attr() {
            Some(attr) => attr,
            None => self.fetch(file.ino, interrupt)?,
        };
        Ok(attr.length.max(end))
    }

    /// An entry with the usual times to live.
    pub(crate) fn entry(&self, ino: Ino, attr: Attr) -> Entry {
        let entry_ttl = if attr.is_dir() { self.config.dir_entry_ttl } else { self.config.entry_ttl };
        Entry { ino, attr, attr_ttl: self.config.attr_ttl, entry_ttl }
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs")
            .field("sid", &self.meta.sid())
            .field("root", &self.config.root)
            .finish_non_exhaustive()
    }
}
