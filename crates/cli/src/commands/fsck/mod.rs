//! `sluice fsck`: does everything that a volume shows exist, and does its metadata agree with
//! itself.
//!
//! What must stay true: without `--repair` or `--sync-dir-stat` nothing is changed, not even a
//! session is opened.

mod objects;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustc_hash::FxHashSet;
use sluice_data::Layout;
use sluice_meta::{
    Interrupt, Meta, Options,
    check::{Finding, Repair, Report, Weight},
};
use sluice_types::{Clock, Ino, SystemClock, Time};

use crate::{engines, flags::StoreFlags, progress::Progress, sizes, tree, volume};
use objects::{Fault, Sizes};

/// By how much the clocks of clients may differ, seconds.
const CLOCKS_DIFFER: i64 = 60;
/// Rounds of repairs: one may bring to light what another has to put right.
const ROUNDS: usize = 5;
/// Files that are told by their path; finding it takes a walk.
const MOST_PATHS: usize = 100;

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
    #[command(flatten)]
    store: StoreFlags,
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

    /// Since when others may have changed what was found, if there are or were any.
    fn look(&mut self, meta: &Meta) -> Result<Option<Time>> {
        self.others |= meta.has_others(&Interrupt::never())?;
        Ok(self.others.then_some(self.began))
    }
}

impl Fsck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let changes = self.repair || self.sync_dir_stat;
        let meta = if changes {
            volume::open_meta(&self.meta_url, "fsck", false)?
        } else {
            Meta::open(engines::open(&self.meta_url)?, Options { read_only: true, ..Options::default() })?
        };
        if changes && meta.is_read_only() {
            bail!("this version cannot change the volume; check it without --repair and --sync-dir-stat");
        }
        let clean = self.check(&meta);
        meta.close()?;
        Ok(if clean? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn check(&self, meta: &Arc<Meta>) -> Result<bool> {
        let mut busy = Busy::since_now(meta, self.repair || self.sync_dir_stat)?;
        let mut report = self.survey(meta)?;
        if self.repair || self.sync_dir_stat {
            report = self.put_right(meta, report, &mut busy)?;
        }
        if !self.sync_dir_stat {
            // Without a record it is counted when somebody asks.
            report.findings.retain(|finding| !matches!(finding, Finding::Usage { stored: None, .. }));
        }
        let kinds = [(Weight::Error, "error"), (Weight::Leak, "leaked"), (Weight::Advisory, "advisory")];
        let [wrong, leaked, advisory] = kinds.map(|(weight, label)| {
            let of_weight = report.findings.iter().filter(|finding| finding.weight() == weight);
            of_weight.inspect(|finding| outln!("{label}: {finding}")).count()
        });
        let mut faults = 0;
        if self.path.is_none() {
            faults = self.check_objects(meta, &report)?;
        }
        outln!(
            "{} inodes and {} slices checked: {wrong} errors in the metadata, {faults} blocks missing or damaged, \
             {leaked} chunks or slices leaked, {advisory} advisory numbers drifted",
            report.inodes,
            report.slices.len(),
        );
        if report.findings.iter().any(|finding| matches!(finding, Finding::Unreadable { .. })) {
            outln!("nothing else was compared, and nothing is repaired, until every record can be read");
        } else if !(self.repair || report.findings.is_empty()) {
            outln!("`sluice fsck --repair` puts right what can be");
        }
        Ok(wrong == 0 && faults == 0)
    }

    fn survey(&self, meta: &Meta) -> Result<Report> {
        let never = Interrupt::never();
        let progress = Progress::new("check metadata", None);
        let add = |count| progress.add(count);
        let report = match &self.path {
            Some(path) => {
                let dir =
                    tree::find(meta, path)?.with_context(|| format!("there is no {path} in the volume"))?;
                meta.check_tree(dir, self.recursive, &never, &add)
            }
            // The tables of SQL engines have a row for each slice.
            None => meta.check(meta.engine_name() == "sqlite3", &never, &add),
        };
        progress.finish();
        Ok(report?)
    }

    /// Repairs and checks again until there is nothing left that can be repaired.
    fn put_right(&self, meta: &Meta, mut report: Report, busy: &mut Busy) -> Result<Report> {
        let never = Interrupt::never();
        for _ in 0..ROUNDS {
            let busy_since = busy.look(meta)?;
            let chosen = |finding: &&Finding| self.repair || matches!(finding, Finding::Usage { .. });
            let wanted: Vec<&Finding> = report.findings.iter().filter(chosen).collect();
            // Counts are right only once what is counted is.
            let (last, first): (Vec<&Finding>, Vec<_>) =
                wanted.into_iter().partition(|finding| finding.weight() == Weight::Advisory);
            let mut put_right = 0;
            let one = |finding: &Finding| self.put_one_right(meta, finding, busy_since, &never);
            for finding in first {
                put_right += one(finding)?;
            }
            if put_right == 0 {
                for finding in last {
                    put_right += one(finding)?;
                }
            }
            if put_right == 0 {
                break;
            }
            report = self.survey(meta)?;
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
        let done = meta.run(repair, never).with_context(|| format!("cannot repair: {finding}"))?;
        if done {
            outln!("repaired: {finding}");
        }
        Ok(u64::from(done))
    }

    /// Checks that the blocks of all slices exist; how many do not, or are damaged.
    fn check_objects(&self, meta: &Meta, report: &Report) -> Result<u64> {
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
        let progress = Progress::new("check objects", None);
        let add = |count| progress.add(count);
        let check = objects::check(store.as_ref(), layout, sizes, &report.slices, &add);
        let faults = volume::runtime()?.block_on(check);
        progress.finish();
        let faults = faults.with_context(|| format!("{} cannot be checked", store.describe()))?;
        if faults.is_empty() { Ok(0) } else { tell(meta, layout, &report.slices, &faults) }
    }
}

/// One path of a file, which may lie below what is damaged itself.
fn path_of(meta: &Meta, ino: Ino) -> String {
    match meta.paths_of(ino, Ino::ROOT, &Interrupt::never()) {
        Ok(paths) => paths.into_iter().next().unwrap_or_else(|| "deleted".into()),
        Err(error) => format!("its path cannot be found out: {error}"),
    }
}

/// Prints faults with the files that they are in; how many there are. What no file shows any more
/// is no fault.
fn tell(meta: &Meta, layout: Layout, slices: &[(u64, u32)], faults: &[Fault]) -> Result<u64> {
    let never = Interrupt::never();
    let sizes: rustc_hash::FxHashMap<u64, u32> = slices.iter().copied().collect();
    let suspected: FxHashSet<(u64, u32)> =
        faults.iter().filter_map(|fault| Some((fault.block.id, *sizes.get(&fault.block.id)?))).collect();
    let files = meta.files_of_slices(&suspected, &never)?;
    let mut paths: rustc_hash::FxHashMap<Ino, String> = rustc_hash::FxHashMap::default();
    let mut count = 0;
    for fault in faults {
        let slice = sizes.get(&fault.block.id).map(|size| (fault.block.id, *size));
        let Some(inos) = slice.and_then(|slice| files.get(&slice)) else { continue };
        count += 1;
        let mut shown = Vec::new();
        for ino in inos {
            if !paths.contains_key(ino) && paths.len() < MOST_PATHS {
                paths.insert(*ino, path_of(meta, *ino));
            }
            shown.push(format!("inode {ino} ({})", paths.get(ino).map_or("…", String::as_str)));
        }
        outln!("error: object {} {}, needed by {}", layout.name(fault.block), fault.what(), shown.join(", "));
    }
    if count > 0 {
        outln!(
            "a client with --writeback may still have missing blocks on its local disk: mount there to upload them"
        );
    }
    Ok(count)
}
