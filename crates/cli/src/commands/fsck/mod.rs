//! `sluice fsck`: checks that all data of a volume exists, and that its metadata is consistent.
//!
//! What must stay true: without `--repair`, `--sync-dir-stat` or `--store-findings` nothing is
//! changed. Not even a session is created. The memory use does not depend on the size of the volume
//! or on the number of findings.

mod objects;
mod report;

use std::{process::ExitCode, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value};
use sluice_meta::{
    FSCK_REPORT, Interrupt, Meta, Options,
    check::{Finding, Repair, Report, Severity},
    sort::SortSpace,
};
use sluice_types::{Clock, SystemClock, Time, printable};

use crate::{
    engines, findings,
    flags::{SortFlags, StoreFlags},
    progress::Progress,
    sizes, tree, volume,
};
use objects::{Check, Sizes};

/// The largest assumed difference between clocks of clients, seconds.
const CLOCKS_DIFFER: i64 = 60;
/// Rounds of repairs: one repair may reveal what another must repair.
const ROUNDS: usize = 5;

/// Check that everything a volume shows exists, and that its metadata agrees with itself
#[derive(Args)]
#[command(after_help = "Examples:
  sluice fsck redis://localhost/1
  sluice fsck redis://localhost/1 --path /dir --recursive --repair")]
pub(crate) struct Fsck {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Check only this directory, and no objects
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// With --path: all below it, too
    #[arg(short, long, requires = "path")]
    recursive: bool,
    /// Put right what can be
    #[arg(long)]
    repair: bool,
    /// Permissions of directories that have to be made again, octal
    #[arg(long, value_name = "MODE", default_value = "0755", value_parser = sizes::octal)]
    repair_dir_mode: u16,
    /// Correct what directories say they hold
    #[arg(long)]
    sync_dir_stat: bool,
    /// Store what was found in the volume, where the console shows it; --repair does so
    #[arg(long, conflicts_with = "path")]
    store_findings: bool,
    #[command(flatten)]
    sort: SortFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// What was found.
struct Counts {
    inodes: u64,
    slices: u64,
    wrong: u64,
    /// Blocks that are missing or damaged.
    faults: u64,
    leaked: u64,
    advisory: u64,
}

impl Counts {
    /// For the console.
    fn report(&self, repaired: bool) -> Map<String, Value> {
        let numbers = [
            ("inodes", self.inodes),
            ("slices", self.slices),
            ("errors", self.wrong),
            ("blocks", self.faults),
            ("leaked", self.leaked),
            ("advisory", self.advisory),
        ];
        let mut report: Map<_, _> =
            numbers.into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect();
        report.insert("repaired".into(), repaired.into());
        report
    }
}

/// Whether others use the volume while it is checked.
struct Busy {
    began: Time,
    others: bool,
}

impl Busy {
    fn since_now(meta: &Meta, repairs: bool) -> Result<Self> {
        let began = SystemClock.now();
        let others = repairs && meta.has_others(&Interrupt::never())?;
        if others {
            tracing::warn!(
                "the volume is in use: what changes meanwhile is not repaired; unmount it to have all put right"
            );
        }
        // Clocks differ.
        Ok(Self { began: Time { sec: began.sec - CLOCKS_DIFFER, ..began }, others })
    }

    /// Since when other clients may have changed what was found; `None` if there are and were none.
    fn look(&mut self, meta: &Meta) -> Result<Option<Time>> {
        self.others |= meta.has_others(&Interrupt::never())?;
        Ok(self.others.then_some(self.began))
    }
}

impl Fsck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (begun, changes) = (Instant::now(), self.repair || self.sync_dir_stat);
        let meta = if changes {
            volume::open_meta(&self.meta_url, "fsck", false)?
        } else {
            Meta::open(engines::open(&self.meta_url)?, Options { read_only: true, ..Options::default() })?
        };
        if changes && meta.is_read_only() {
            bail!("this version cannot change the volume; check it without --repair and --sync-dir-stat");
        }
        let counts = self.check(&meta);
        meta.close()?;
        let counts = counts?;
        if (self.repair || self.store_findings) && self.path.is_none() {
            findings::store(&self.meta_url, (FSCK_REPORT, "fsck"), begun, counts.report(self.repair));
        }
        Ok(if counts.wrong == 0 && counts.faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn check(&self, meta: &Arc<Meta>) -> Result<Counts> {
        let mut busy = Busy::since_now(meta, self.repair || self.sync_dir_stat)?;
        let space = self.sort.space()?;
        let mut report = self.survey(meta, &space)?;
        if self.repair || self.sync_dir_stat {
            report = self.put_right(meta, report, &space, &mut busy)?;
        }
        let (mut wrong, mut leaked, mut advisory) = (0_u64, 0_u64, 0_u64);
        for finding in report.findings.all()? {
            let finding = finding?;
            // Without a record it is counted when somebody asks.
            if !self.sync_dir_stat && matches!(finding, Finding::Usage { stored: None, .. }) {
                continue;
            }
            let (count, label) = match finding.severity() {
                Severity::Error => (&mut wrong, "error"),
                Severity::Leak => (&mut leaked, "leaked"),
                Severity::Advisory => (&mut advisory, "advisory"),
            };
            *count += 1;
            outln!("{label}: {}", printable(finding));
        }
        let mut faults = 0;
        if self.path.is_none() {
            faults = self.check_objects(meta, &report, &space)?;
        }
        outln!(
            "{} inodes and {} slices checked: {wrong} errors in the metadata, {faults} blocks missing or damaged, \
             {leaked} chunks or slices leaked, {advisory} advisory numbers drifted",
            report.inodes,
            report.slices.count(),
        );
        if report.findings.are_unreadable() {
            outln!("nothing else was compared, and nothing is repaired, until every record can be read");
        } else if !self.repair && wrong + leaked + advisory > 0 {
            outln!("`sluice fsck --repair` puts right what can be");
        }
        let (inodes, slices) = (report.inodes, report.slices.count());
        Ok(Counts { inodes, slices, wrong, faults, leaked, advisory })
    }

    fn survey(&self, meta: &Meta, space: &SortSpace) -> Result<Report> {
        let never = Interrupt::never();
        let progress = Progress::new("check metadata", None);
        let add = |count| progress.add(count);
        let report = match &self.path {
            Some(path) => {
                let dir =
                    tree::find(meta, path)?.with_context(|| format!("there is no {path} in the volume"))?;
                meta.check_tree(dir, self.recursive, space, &never, &add)
            }
            // The tables of SQL engines have a row for each slice.
            None => meta.check(meta.engine_name() == "sqlite3", space, &never, &add),
        };
        progress.finish();
        Ok(report?)
    }

    /// Repairs and checks again until there is nothing left that can be repaired.
    fn put_right(
        &self,
        meta: &Meta,
        mut report: Report,
        space: &SortSpace,
        busy: &mut Busy,
    ) -> Result<Report> {
        let never = Interrupt::never();
        for _ in 0..ROUNDS {
            let busy_since = busy.look(meta)?;
            let (mut put_right, mut counts_too) = (0, false);
            for finding in report.findings.all()? {
                let finding = finding?;
                // Counts are repaired last, because they depend on all other repairs.
                let is_count = finding.severity() == Severity::Advisory;
                counts_too |= is_count && put_right == 0;
                if is_count && !counts_too {
                    break;
                }
                if self.repair || matches!(finding, Finding::Usage { .. }) {
                    put_right += self.put_one_right(meta, &finding, busy_since, &never)?;
                }
            }
            if put_right == 0 {
                break;
            }
            report = self.survey(meta, space)?;
        }
        Ok(report)
    }

    fn put_one_right(
        &self,
        meta: &Meta,
        finding: &Finding,
        busy_since: Option<Time>,
        never: &Interrupt,
    ) -> Result<u64> {
        let repair = Repair { finding: finding.clone(), dir_mode: self.repair_dir_mode, busy_since };
        let done =
            meta.run(repair, never).with_context(|| format!("cannot repair: {}", printable(finding)))?;
        if done {
            outln!("repaired: {}", printable(finding));
        }
        Ok(u64::from(done))
    }

    /// Checks that the blocks of all slices exist. Returns how many are missing or damaged.
    fn check_objects(&self, meta: &Meta, report: &Report, space: &SortSpace) -> Result<u64> {
        let format = meta.env().format();
        let config = self.store.config(&format)?;
        let store = sluice_object::open(&config)?;
        let layout = volume::layout(&format)?;
        let compressed = !matches!(format.compression.to_ascii_lowercase().as_str(), "" | "none");
        let sizes = match (compressed, config.encryption.is_some()) {
            (true, _) => Sizes::Any,
            (false, true) => Sizes::AtLeast,
            (false, false) => Sizes::Exact,
        };
        let check = Check { store: store.as_ref(), layout, sizes, space };
        let runtime = volume::runtime()?;
        let progress = Progress::new("list objects", None);
        let objects = runtime.block_on(check.list(&|count| progress.add(count)));
        progress.finish();
        let objects = objects?;
        if objects.count() == 0 && report.slices.count() > 0 {
            runtime
                .block_on(volume::find_marker(store.as_ref()))
                .with_context(|| format!("{} cannot be checked", store.describe()))?;
        }
        let progress = Progress::new("check objects", None);
        let add = |count| progress.add(count);
        let faults = runtime.block_on(check.compare(report.slices.all()?, &objects, &add));
        progress.finish();
        drop(objects);
        report::report(meta, layout, space, &faults?)
    }
}
