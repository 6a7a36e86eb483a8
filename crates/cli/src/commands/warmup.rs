//! `sluice warmup`: fetches files into the block cache of the mount that serves them, before
//! programs read them.
//!
//! What must stay true: the command reports what could not be fetched, and its exit code is then
//! not 0.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::Deserialize;
use sluice_types::Ino;

use crate::{
    control::{self, Control, Message},
    progress::Progress,
    sizes, table,
};

/// Paths of one request: as many as `JuiceFS` sends at once, …
const MOST_PATHS: usize = 10_240;
/// … and their bytes.
const MOST_BYTES: usize = 1 << 20;

/// Fetch files into the block cache of a mount
///
/// Programs that read them afterwards do not wait for the object store. `--check` shows how much of
/// them is cached, `--evict` makes room.
#[derive(Args)]
#[command(after_help = "Examples:
  sluice warmup /mnt/vol/dataset
  sluice warmup --check /mnt/vol/dataset
  find /mnt/vol/dataset -name '*.idx' > list; sluice warmup --file list")]
pub(crate) struct Warmup {
    /// Files, and directories with all below them, in mounted volumes
    #[arg(value_name = "PATH", required_unless_present = "file")]
    paths: Vec<PathBuf>,
    /// A file with more paths, one a line, each exactly as the name is
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Files or blocks fetched at once; a mount of Sluice takes at most 64, and fetches as many as
    /// its buffer allows
    #[arg(short = 'p', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Do not wait: the mount goes on by itself, and its log says how it ended
    #[arg(short, long)]
    background: bool,
    /// Drop them from the cache instead
    #[arg(long)]
    evict: bool,
    /// Only show how much of them is cached
    #[arg(long, conflicts_with = "evict")]
    check: bool,
}

/// The paths for one mount that are not asked for yet.
struct Batch {
    control: Control,
    /// Where the mount begins, and its number; `None` if only a part of it can be seen from here.
    mount: Option<(PathBuf, Option<u64>)>,
    paths: Vec<u8>,
    count: usize,
}

/// What a mount answers. A mount of JuiceFS tells no failures.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Answer {
    file_count: u64,
    total_bytes: u64,
    miss_bytes: u64,
    locations: BTreeMap<String, u64>,
    failures: Failures,
    /// Whether a mount did not say what is cached now.
    #[serde(skip)]
    silent: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failures {
    count: u64,
    named: Vec<String>,
    incomplete: bool,
}

impl Answer {
    /// Reads the answer of a mount whose last progress was `done`, files and bytes. JuiceFS before
    /// 1.2 answers nothing, and fetches files whatever it is asked to do with them.
    fn read(data: &[u8], done: (u64, u64), fetches: bool) -> Result<Self> {
        if !data.is_empty() {
            return serde_json::from_slice(data).context("the mount's answer is not understood");
        }
        ensure!(
            fetches,
            "the mount is of JuiceFS before 1.2, which knows neither --check nor --evict: it has fetched the files \
             instead; upgrade it"
        );
        let (file_count, total_bytes) = done;
        Ok(Self { file_count, total_bytes, silent: true, ..Self::default() })
    }

    fn add(&mut self, other: Self) {
        self.file_count += other.file_count;
        self.total_bytes += other.total_bytes;
        self.miss_bytes += other.miss_bytes;
        self.silent |= other.silent;
        for (place, bytes) in other.locations {
            *self.locations.entry(place).or_default() += bytes;
        }
    }
}

impl Warmup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let what = match (self.evict, self.check) {
            (true, _) => "evict",
            (_, true) => "check",
            _ => "warm up",
        };
        let progress = Progress::bytes(what, None);
        let (mut sum, mut failed, mut asked) = (Answer::default(), false, 0);
        let mut batches = BTreeMap::new();
        for path in self.all_paths()? {
            let path = path?;
            match take(&mut batches, &path) {
                Err(error) => {
                    progress.say(format_args!("sluice: {error:#}"));
                    failed = true;
                }
                Ok(batch) => {
                    asked += 1;
                    if batch.count >= MOST_PATHS || batch.paths.len() >= MOST_BYTES {
                        failed |= self.send(batch, &progress, &mut sum)?;
                    }
                }
            }
        }
        for batch in batches.values_mut().filter(|batch| batch.count > 0) {
            failed |= self.send(batch, &progress, &mut sum)?;
        }
        if self.background || asked == 0 {
            progress.clear();
            if asked > 0 {
                doneln!("the mount goes on with {asked} paths in the background; its log says how that ends");
            }
        } else {
            let (_, time) = progress.finish();
            failed |= self.report(&sum, time.as_secs_f64());
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The paths of the command line, then those of the file.
    fn all_paths(&self) -> Result<impl Iterator<Item = Result<PathBuf>>> {
        let file = self.file.as_deref();
        let cannot_read = |file: &Path| format!("cannot read {}", file.display());
        let lines = file.map(|file| File::open(file).with_context(|| cannot_read(file))).transpose()?;
        let lines = lines.map(|lines| BufReader::new(lines).split(b'\n')).into_iter().flatten();
        let listed = lines.filter_map(move |line| match line {
            Ok(line) if line.is_empty() => None,
            // As it is: a name may begin or end with blanks.
            Ok(line) => Some(Ok(PathBuf::from(std::ffi::OsString::from_vec(line)))),
            Err(error) => Some(Err(error).with_context(|| cannot_read(file.unwrap_or(Path::new(""))))),
        });
        Ok(self.paths.iter().cloned().map(Ok).chain(listed))
    }

    /// Sends what a batch holds, and empties it. Returns whether the mount told failures.
    fn send(&self, batch: &mut Batch, progress: &Progress, sum: &mut Answer) -> Result<bool> {
        let paths = std::mem::take(&mut batch.paths);
        batch.count = 0;
        let action = match (self.evict, self.check) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 0,
        };
        let message = Message::new(control::FILL_CACHE)
            .put(&(paths.len() as u32).to_be_bytes())
            .put(&paths)
            .put(&self.threads.to_be_bytes())
            .put(&[u8::from(self.background), action]);
        let (mut piece, mut done) = (progress.piece(), (0, 0));
        let data = batch.control.ask(message, |files, bytes| {
            done = (files, bytes);
            piece(bytes, 0);
        })?;
        let mut answer = Answer::read(&data, done, action == 0)?;
        let Failures { count, named, incomplete } = std::mem::take(&mut answer.failures);
        for failure in &named {
            progress.say(format_args!("sluice: {failure}"));
        }
        if count > named.len() as u64 {
            progress.say(format_args!("sluice: {} more failures", count - named.len() as u64));
        }
        if incomplete {
            progress.say("sluice: the mount left the rest out; its log says why");
        }
        sum.add(answer);
        Ok(count > 0 || incomplete)
    }

    /// Says what was done. Returns whether something was not.
    fn report(&self, sum: &Answer, seconds: f64) -> bool {
        let Answer { file_count: files, total_bytes: total, miss_bytes: missed, .. } = *sum;
        let cached = total.saturating_sub(missed);
        let [shown, all, not] = [cached, total, missed].map(sizes::human);
        if self.check {
            let share = |bytes: u64| format!("{:.1}%", bytes as f64 * 100.0 / (total.max(1)) as f64);
            let mut rows = vec![["LOCATION", "SIZE", "SHARE"].map(str::to_owned).to_vec()];
            let row =
                |(place, bytes): (&String, &u64)| vec![place.clone(), sizes::human(*bytes), share(*bytes)];
            rows.extend(sum.locations.iter().map(row));
            if rows.len() > 1 {
                table::print(&rows, &[0]);
            }
            outln!("{files} files: {shown} of {all} ({}) cached, {not} not", share(cached));
        } else if self.evict {
            doneln!("evicted {shown} of {files} files in {seconds:.2} s");
        } else {
            doneln!("warmed up {shown} of {files} files in {seconds:.2} s");
            if sum.silent {
                errln!(
                    "sluice: the mount is of JuiceFS before 1.2, which does not say what it could not fetch; its log \
                     does"
                );
            }
            if missed > 0 {
                errln!(
                    "sluice: {not} are not cached: they failed, or the cache has no room (--cache-size, \
                     --free-space-ratio of the mount)"
                );
                return true;
            }
        }
        false
    }
}

/// Adds a path to the batch of its mount.
fn take<'b>(batches: &'b mut BTreeMap<u64, Batch>, path: &Path) -> Result<&'b mut Batch> {
    let path = fs::canonicalize(path).with_context(|| format!("cannot use {}", path.display()))?;
    let found = fs::metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?;
    let batch = match batches.entry(found.dev()) {
        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::btree_map::Entry::Vacant(vacant) => vacant.insert(Batch {
            control: Control::open(&path)?,
            mount: mount_of(&path, found.dev()).map(|mount| (mount.clone(), mount_number(&mount))),
            paths: Vec::new(),
            count: 0,
        }),
    };
    if batch.count > 0 {
        batch.paths.push(b'\n');
    }
    batch.count += 1;
    // What is bound over a directory of the mount shows a part of the volume that has another path
    // there.
    let begin = batch.mount.as_ref().filter(|(_, number)| *number == mount_number(&path));
    let below = begin.and_then(|(mount, _)| path.strip_prefix(mount).ok());
    match below.map(|below| below.as_os_str().as_bytes()) {
        // The list has no way to write a line feed.
        Some(below) if !below.contains(&b'\n') => batch.paths.extend([b"/", below].concat()),
        _ => batch.paths.extend(format!("inode:{}", found.ino()).into_bytes()),
    }
    Ok(batch)
}

/// The number of the mount that shows `path`; `None` from a kernel before 5.8.
fn mount_number(path: &Path) -> Option<u64> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// The directory where the mount begins in which `path` is.
fn mount_of(path: &Path, dev: u64) -> Option<PathBuf> {
    let is_root =
        |dir: &&Path| fs::metadata(dir).is_ok_and(|found| found.dev() == dev && found.ino() == Ino::ROOT.0);
    path.ancestors().find(is_root).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_answer_is_that_of_an_old_mount() {
        let read = |data: &[u8], fetches| Answer::read(data, (3, 70), fetches);
        let silent = read(b"", true).unwrap();
        assert_eq!((silent.file_count, silent.total_bytes, silent.silent), (3, 70, true));
        assert!(read(b"", false).unwrap_err().to_string().contains("JuiceFS before 1.2"));
        let full = read(br#"{"FileCount":1,"TotalBytes":5,"MissBytes":2}"#, false).unwrap();
        assert_eq!((full.file_count, full.total_bytes, full.miss_bytes, full.silent), (1, 5, 2, false));
        assert!(read(b"{", true).is_err());
    }
}
