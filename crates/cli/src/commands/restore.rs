//! `sluice restore`: rebuilds the trees in an hour directory of the trash.
//!
//! What must stay true: nothing that exists is replaced. Names in the trash say where a file was
//! and what it was called, but are cut at 255 bytes: the end of a longer one is lost.

use std::{
    cell::Cell,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use parking_lot::Mutex;
use sluice_meta::{
    Meta,
    engine::Scan,
    op::At,
    ops::{
        lookup::Lookup,
        removal::trash_origin,
        rename::{Rename, RenameMode},
    },
    schema::Row,
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Interrupt, MAX_NAME, Name};

use crate::{progress::Progress, signals, volume};

/// Names that are moved together.
const TOGETHER: usize = 1000;
/// Names of an hour about which a line each is written, and as many whose end may be lost.
const MOST_LINES: u64 = 20;

/// Rebuild trees in the trash, or put them back
///
/// Without --put-back, what was in a directory that is in the same hour of the trash is moved into
/// that directory again. With it, everything goes back to where it was. Nothing that exists is
/// replaced. For root.
///
/// Example: `sluice restore redis://localhost/1 2026-11-25-12 --put-back`
#[derive(Args)]
pub(crate) struct Restore {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Directories in .trash, such as 2026-11-25-12
    #[arg(value_name = "HOUR", required = true)]
    hours: Vec<String>,
    /// Move everything to its original directory
    #[arg(long)]
    put_back: bool,
    /// Hours that are restored at once; the names of one hour go in batches, one after another, as
    /// all of them leave the same directory
    #[arg(long, value_name = "N", default_value_t = 10)]
    threads: usize,
}

/// What became of the names of an hour.
#[derive(Default)]
struct Tally {
    moved: u64,
    /// Of those that moved, the ones whose end may be lost.
    cut: u64,
    waiting: u64,
    conflicts: u64,
    failed: u64,
}

/// An hour of the trash that is being restored.
struct Hour<'a> {
    meta: &'a Meta,
    ino: Ino,
    /// Directories in it, sorted.
    dirs: Vec<Ino>,
    put_back: bool,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    /// Names that did not move, so far.
    stayed: Cell<u64>,
    /// Names whose end may be lost, so far.
    cut: Cell<u64>,
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root may restore files from the trash");
        }
        ensure!(self.threads > 0, "--threads has to be at least 1");
        let interrupt = signals::interrupt()?;
        let meta = volume::open_meta(&self.meta_url, "restore", false)?;
        let progress = Progress::new("restore", None);
        let restored =
            side_by_side(&self.hours, self.threads, |hour| self.restore(&meta, hour, &interrupt, &progress));
        progress.finish();
        let mut code = ExitCode::SUCCESS;
        for (hour, restored) in self.hours.iter().zip(restored) {
            match restored {
                Ok(tally) => {
                    self.report(hour, &tally);
                    if tally.conflicts + tally.failed > 0 {
                        code = ExitCode::FAILURE;
                    }
                }
                Err(error) => {
                    errln!("sluice: {error:#}");
                    code = ExitCode::FAILURE;
                }
            }
        }
        meta.close()?;
        Ok(code)
    }

    fn restore(&self, meta: &Meta, hour: &str, interrupt: &Interrupt, progress: &Progress) -> Result<Tally> {
        let failed = || format!("cannot restore {hour}");
        let at = At::new(Ino::TRASH, Name::new(hour.as_bytes()).with_context(failed)?);
        let ino = match meta.read(&Lookup(at), interrupt) {
            Ok((ino, _)) => ino,
            Err(FsError::NotFound) => {
                bail!("there is no hour {hour} in the trash; list .trash in a mount to see which there are")
            }
            Err(error) => return Err(error).with_context(failed),
        };
        let dirs =
            if self.put_back { Vec::new() } else { dirs_in(meta, ino, interrupt).with_context(failed)? };
        let [stayed, cut] = [0, 0].map(Cell::new);
        let hour = Hour { meta, ino, dirs, put_back: self.put_back, interrupt, progress, stayed, cut };
        hour.restore().with_context(failed)
    }

    fn report(&self, hour: &str, tally: &Tally) {
        let done = if self.put_back { "restored" } else { "rebuilt" };
        let waiting =
            if self.put_back { String::new() } else { format!(", {} need --put-back", tally.waiting) };
        let Tally { moved, cut, conflicts, failed, .. } = *tally;
        let cut = if cut > 0 { format!(" ({cut} with names that may be cut)") } else { String::new() };
        outln!("{hour}: {done} {moved} entries{cut}{waiting}, {conflicts} conflicts, {failed} failed");
    }
}

/// Does `work` with each of `items`, `threads` at once. The results in their order.
fn side_by_side<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let run = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(item);
            results.lock().push((at, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The directories in a directory, sorted.
fn dirs_in(meta: &Meta, dir: Ino, interrupt: &Interrupt) -> FsResult<Vec<Ino>> {
    let mut dirs = Vec::new();
    meta.each_page(Scan::Entries { dir, nodes: false }, interrupt, |rows| {
        dirs.extend(rows.into_iter().filter_map(|row| match row {
            Row::Entry(_, _, entry) if entry.kind == FileType::Dir => Some(entry.ino),
            _ => None,
        }));
        Ok(())
    })?;
    dirs.sort_unstable();
    Ok(dirs)
}

/// Where an entry of the trash was, if its name says it.
fn origin(name: &Name) -> Option<At> {
    let (dir, name) = trash_origin(name)?;
    Some(At::new(dir, Name::new(name).ok()?))
}

impl Hour<'_> {
    /// Moves all names. While names go, a listing still shows each of the others.
    fn restore(&self) -> FsResult<Tally> {
        let mut tally = Tally::default();
        self.meta.each_page(Scan::Entries { dir: self.ino, nodes: false }, self.interrupt, |rows| {
            let names: Vec<Name> = rows
                .into_iter()
                .filter_map(|row| if let Row::Entry(_, name, _) = row { Some(name) } else { None })
                .collect();
            for names in names.chunks(TOGETHER) {
                self.restore_some(names, &mut tally);
                if self.interrupt.is_set() {
                    return Err(FsError::Interrupted);
                }
            }
            Ok(())
        })?;
        Ok(tally)
    }

    fn restore_some(&self, names: &[Name], tally: &mut Tally) {
        let mut renames = Vec::new();
        for name in names {
            match origin(name) {
                Some(to) if self.put_back || self.dirs.binary_search(&to.dir).is_ok() => {
                    let from = At::new(self.ino, name.clone());
                    renames.push(Rename { from, to, mode: RenameMode::Restore, caller: Caller::client() });
                }
                Some(_) => tally.waiting += 1,
                None => {
                    self.tell(&self.stayed, name, "its name does not say where it was");
                    tally.failed += 1;
                }
            }
        }
        let moves = self.meta.run_all(renames.clone(), self.interrupt);
        for (rename, moved) in renames.iter().zip(moves) {
            self.progress.add(1);
            let name = &rename.from.name;
            // What lies below a directory is counted first where it comes under another quota.
            let moved = match moved {
                Err(FsError::Again) => self.meta.rename(rename, self.interrupt),
                moved => moved,
            };
            match moved {
                Ok(_) => {
                    tally.moved += 1;
                    if name.len() == MAX_NAME {
                        tally.cut += 1;
                        let what = "restored, but the end of its name may be lost: the trash cuts it";
                        self.tell(&self.cut, name, what);
                    }
                }
                Err(FsError::Exists) => {
                    self.tell(&self.stayed, name, "something of that name exists; rename that and try again");
                    tally.conflicts += 1;
                }
                Err(FsError::NotFound) => {
                    if self.is_there(name) {
                        self.tell(
                            &self.stayed,
                            name,
                            "its directory does not exist any more; restore that first",
                        );
                        tally.failed += 1;
                    }
                }
                Err(error) => {
                    self.tell(&self.stayed, name, &error.to_string());
                    tally.failed += 1;
                }
            }
        }
    }

    /// Whether the hour still has the name: a listing may show one twice.
    fn is_there(&self, name: &Name) -> bool {
        let look = Lookup(At::new(self.ino, name.clone()));
        !matches!(self.meta.read(&look, self.interrupt), Err(FsError::NotFound))
    }

    /// Writes a line about a name, unless there were enough of its kind, which `lines` counts.
    fn tell(&self, lines: &Cell<u64>, name: &Name, what: &str) {
        let line = lines.get();
        lines.set(line + 1);
        match line {
            0..MOST_LINES => {}
            MOST_LINES => return self.progress.say("sluice: other names are counted, and not listed"),
            _ => return,
        }
        self.progress.say(format_args!("sluice: {}: {what}", name.escape_ascii()));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn hours_are_restored_at_once_and_reported_in_their_order() {
        let (first, second) = (mpsc::channel(), mpsc::channel());
        let ends = [(Mutex::new(first.1), second.0), (Mutex::new(second.1), first.0)];
        // Each waits for the other.
        let met = side_by_side(&[1, 0], 2, |end| {
            let (here, there) = &ends[*end];
            there.send(()).unwrap();
            (*end, here.lock().recv_timeout(Duration::from_secs(30)).is_ok())
        });
        assert_eq!(met, [(1, true), (0, true)]);
        assert_eq!(side_by_side(&[1, 2, 3], 1, |item| item * 2), [2, 4, 6]);
        assert_eq!(side_by_side(&[0; 0], 9, |item| *item), [0; 0]);
    }
}
