//! `sluice gc`: deletes unreferenced objects.
//!
//! What must stay true: it deletes nothing that is used or may be used later, whatever clients do
//! meanwhile. It deletes an object only if
//!
//! * the object is older than an hour. A client that uploads a block commits a record of it long
//!   before that, or gives up. A block that is staged on a local disk is uploaded after its record
//!   was committed, and gc sees that record.
//! * the object was listed before two surveys of the records, and neither survey found a record of
//!   its slice. A survey reads all chunks, then replaced slices, then references. A compaction
//!   moves a slice only from the chunks to the replaced slices, which are read later. A clone and a
//!   removal may move a slice to a part that was read already, but then the clone has left a
//!   reference. SQL databases have a reference for every slice, so a survey always finds a slice in
//!   use. On other databases, gc could miss a slice only if it moved twice: once during each
//!   survey, each time from a part that was not read yet to a part that was.
//!
//! Slice ids are never assigned twice, so a leaked object cannot be used again.
//!
//! A file store also lists what writers left that died before they could rename it. No record can
//! name such a file, so gc deletes it when it is older than an hour.

mod clean;
mod compare;
mod scan;

use std::{env, process::ExitCode, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use sluice_data::Layout;
use sluice_meta::{
    GC_REPORT, Meta,
    sort::{SortSpace, Sorted, Sorter},
};
use sluice_object::ObjectStore;
use sluice_types::{Clock, FsError, Interrupt, SystemClock};
use tokio::runtime::Runtime;

use self::compare::{SliceState, compare};
use crate::{
    blocks::{Object, object_of, object_record},
    findings,
    flags::{SortFlags, StoreFlags},
    progress::Progress,
    signals, sizes, volume,
};

/// Age below which objects are left alone, seconds, unless [`AGE_NAME`] says another.
const AGE: i64 = 3600;
/// The environment variable of JuiceFS for it.
const AGE_NAME: &str = "JFS_GC_SKIPPEDTIME";

/// Find objects that no file needs, and delete them
///
/// Compares the objects of the volume with the slices in its metadata. Objects younger than an hour
/// are left alone. It may run while the volume is in use. Without --delete and --compact nothing is
/// changed.
///
/// Example: `sluice gc redis://localhost/1 --delete`
#[derive(Args)]
pub(crate) struct Gc {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Delete leaked objects, expired trash, deleted files, abandoned clones and slices that are
    /// not needed any more
    #[arg(long)]
    delete: bool,
    /// Compact all chunks that are made of more than one slice
    #[arg(long)]
    compact: bool,
    /// Objects deleted, and chunks compacted, at once; at most 256
    #[arg(short = 'p', long, value_name = "N", default_value_t = 10, value_parser = sizes::threads)]
    threads: usize,
    /// Store what was found in the volume, where the console shows it; --delete and --compact do so
    #[arg(long)]
    store_findings: bool,
    #[command(flatten)]
    sort: SortFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// How many, and their bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    count: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What was found.
#[derive(Clone, Copy, Default)]
struct Found {
    scanned: u64,
    valid: Tally,
    pending: Tally,
    compacted: Tally,
    leaked: Tally,
    skipped: Tally,
    delayed_slices: Tally,
    deleted_files: Tally,
    /// Files of dead writers that could not be deleted.
    undeleted: u64,
}

impl Found {
    /// For the console.
    fn report(&self, deleted: bool) -> Map<String, Value> {
        let tallies = [
            ("valid", self.valid),
            ("pending", self.pending),
            ("compacted", self.compacted),
            ("leaked", self.leaked),
            ("skipped", self.skipped),
            ("delayed_slices", self.delayed_slices),
            ("deleted_files", self.deleted_files),
        ];
        let shown = |tally: Tally| json!({ "count": tally.count, "bytes": tally.bytes });
        let mut report: Map<_, _> =
            tallies.into_iter().map(|(name, tally)| (name.to_owned(), shown(tally))).collect();
        report.insert("scanned".into(), self.scanned.into());
        report.insert("deleted".into(), deleted.into());
        report
    }
}

/// What every step needs.
pub(super) struct Collector<'a> {
    args: &'a Gc,
    meta: &'a Arc<Meta>,
    store: Arc<dyn ObjectStore>,
    layout: Layout,
    runtime: Runtime,
    interrupt: Interrupt,
    space: SortSpace,
}

impl Gc {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (begun, oldest) = (Instant::now(), SystemClock.now().sec - spared_age()?);
        let changes = self.delete || self.compact;
        let interrupt = signals::interrupt()?;
        let meta = volume::open_meta(&self.meta_url, "gc", !changes)?;
        if changes && meta.is_read_only() {
            bail!("this version cannot change the volume; run gc without --delete and --compact");
        }
        let collected = self.collect(&meta, oldest, interrupt);
        let closed = meta.close();
        let found = collected?;
        closed?;
        if changes || self.store_findings {
            findings::store(&self.meta_url, (GC_REPORT, "gc"), begun, found.report(self.delete));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn collect(&self, meta: &Arc<Meta>, oldest: i64, interrupt: Interrupt) -> Result<Found> {
        let format = meta.env().format();
        let config = self.store.config(&format)?;
        let store = sluice_object::open(&config)?;
        let layout = volume::layout(&format)?;
        let runtime = volume::runtime()?;
        Collector { args: self, meta, store, layout, runtime, interrupt, space: self.sort.space()? }
            .collect(oldest)
    }
}

/// Age below which objects are left alone, seconds.
fn spared_age() -> Result<i64> {
    match env::var(AGE_NAME) {
        Ok(text) => text.parse().ok().filter(|age| *age >= 0).with_context(|| {
            format!("{AGE_NAME}={text} is no number of seconds; correct or unset the variable")
        }),
        Err(_) => Ok(AGE),
    }
}

impl Collector<'_> {
    fn collect(&self, oldest: i64) -> Result<Found> {
        let mut found = Found::default();
        let cleaned = self.clean(&mut found)?;
        let objects = self.list(oldest, &mut found)?;
        let mut rows = None;
        let leaked = self.find_leaked(&objects, Some(&mut found), &mut rows)?;
        if self.args.delete && found.leaked.count > 0 {
            let leaked = self.find_leaked(&leaked, None, &mut rows)?;
            self.delete_leaked(&leaked)?;
        }
        if let Some(slices) = cleaned {
            errln!("deleted {slices} pending slices");
        }
        let Found {
            scanned,
            valid,
            pending,
            compacted,
            leaked,
            skipped,
            delayed_slices,
            deleted_files,
            undeleted,
        } = found;
        outln!(
            "scanned {scanned} objects, {} valid, {} pending delete ({} bytes), {} compacted ({} bytes), {} leaked \
             ({} bytes), {} delslices ({} bytes), {} delfiles ({} bytes), {} skipped ({} bytes)",
            valid.count,
            pending.count,
            pending.bytes,
            compacted.count,
            compacted.bytes,
            leaked.count,
            leaked.bytes,
            delayed_slices.count,
            delayed_slices.bytes,
            deleted_files.count,
            deleted_files.bytes,
            skipped.count,
            skipped.bytes,
        );
        if leaked.count > 0 && !self.args.delete {
            outln!("`sluice gc --delete` deletes leaked objects");
        }
        ensure!(undeleted == 0, "{undeleted} leaked objects could not be deleted; begin gc again");
        Ok(found)
    }

    /// Fails after a signal.
    fn go_on(&self) -> Result<()> {
        if self.interrupt.is_set() {
            return Err(FsError::Interrupted).context("gc was interrupted; begin it again");
        }
        Ok(())
    }

    /// Those of `objects` that no record refers to. `rows` is the number of records that the survey
    /// before this one read, if there was one.
    fn find_leaked(
        &self,
        objects: &Sorted,
        mut found: Option<&mut Found>,
        rows: &mut Option<u64>,
    ) -> Result<Sorted> {
        let slices = self.survey(rows)?;
        let progress = Progress::new("compare objects", Some(objects.count()));
        let mut leaked = Sorter::new(&self.space);
        compare(objects, &slices.sorted()?, self.layout, |object, state| {
            progress.add(1);
            if let Some(found) = &mut found {
                found.tally(state).add(object.1);
            }
            if state.is_none() {
                leaked.add(&object_record(object))?;
            }
            self.go_on()
        })?;
        progress.finish();
        Ok(leaked.sorted()?)
    }

    fn delete_leaked(&self, leaked: &Sorted) -> Result<()> {
        let progress = Progress::new("delete leaked objects", Some(leaked.count()));
        let mut leaked = leaked.records()?;
        let mut failed = 0;
        loop {
            let mut some: Vec<Object> = Vec::new();
            while some.len() < 1000
                && let Some((record, _)) = leaked.next()?
            {
                some.push(object_of(record));
            }
            if some.is_empty() {
                break;
            }
            self.go_on()?;
            let deleted = stream::iter(some)
                .map(|(block, _)| async move { self.delete(&self.layout.name(block)).await });
            failed += self.runtime.block_on(deleted.buffer_unordered(self.args.threads).fold(
                0,
                async |failed, deleted| {
                    progress.add(1);
                    failed + u64::from(!deleted)
                },
            ));
        }
        progress.finish();
        ensure!(failed == 0, "{failed} leaked objects could not be deleted; begin gc again");
        Ok(())
    }

    /// Deletes a leaked object. Returns whether it is gone.
    async fn delete(&self, key: &str) -> bool {
        let deleted = self.store.delete(key).await;
        if let Err(error) = &deleted {
            tracing::warn!(%error, "a leaked object could not be deleted");
        }
        deleted.is_ok()
    }
}

impl Found {
    fn tally(&mut self, state: Option<SliceState>) -> &mut Tally {
        match state {
            Some(SliceState::Valid | SliceState::Referred) => &mut self.valid,
            Some(SliceState::Pending) => &mut self.pending,
            Some(SliceState::Compacted) => &mut self.compacted,
            None => &mut self.leaked,
        }
    }
}
