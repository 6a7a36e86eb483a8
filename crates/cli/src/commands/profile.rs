//! `sluice profile`: which operations take how much time, from the access log of a mount or from a
//! copy of it.
//!
//! What must stay true: memory does not grow with the log.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, IsTerminal, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use sluice_types::{Clock, SystemClock, Time};

use crate::internal_file;

/// Longest line that is understood.
const LONGEST: u64 = 64 << 10;
/// Names of operations that are told apart: there are far fewer.
const OPERATIONS: usize = 1000;
/// How a log writes times.
const TIME: &str = "%Y.%m.%d %H:%M:%S%.f";
/// Clears a terminal.
const CLEAR: &str = "\x1b[2J\x1b[1;1H";

/// Show which operations take how much time
#[derive(Args)]
#[command(after_help = "Examples:
  sluice profile /mnt/vol -u 1000               # as it happens, of one user
  cat /mnt/vol/.accesslog > log                 # until ^C
  sluice profile log --interval 60              # one table for each minute
  sluice profile log --interval 0               # one table for all

Count is the number of operations, Percent the share of the time that passed; operations at the same
time make more than 100.")]
pub(crate) struct Profile {
    /// Where the volume is mounted, or a copy of its access log
    #[arg(value_name = "MOUNTPOINT|LOG")]
    source: PathBuf,
    /// Only operations of these users, as numbers with commas between
    #[arg(short, long, value_name = "UIDS", value_delimiter = ',')]
    uid: Vec<u32>,
    /// Only operations of these groups
    #[arg(short, long, value_name = "GIDS", value_delimiter = ',')]
    gid: Vec<u32>,
    /// Only operations of these processes
    #[arg(short, long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Seconds of one table; 0 for one table of a whole log
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(..=86_400))]
    interval: u64,
}

/// One line of a log.
struct Line<'a> {
    at: Time,
    ids: [u32; 3],
    operation: &'a str,
    micros: u64,
}

/// Counts and times of one table.
#[derive(Default)]
struct Totals(BTreeMap<String, (u64, u64)>);

impl Profile {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let about = || format!("{} cannot be read", self.source.display());
        if fs::metadata(&self.source).with_context(about)?.is_dir() {
            let mountpoint = internal_file::mount_of(&self.source)?;
            if self.interval == 0 {
                bail!("--interval 0 is for logs; a mount needs 1 or more");
            }
            let log = internal_file::path(&mountpoint, "accesslog");
            self.follow(BufReader::new(File::open(log).with_context(about)?))
        } else {
            self.replay(BufReader::new(File::open(&self.source).with_context(about)?), &self.source)
        }
    }

    /// Shows tables as time passes. A mount says something at least once a second.
    fn follow(&self, mut log: impl BufRead) -> Result<ExitCode> {
        let interval = Duration::from_secs(self.interval);
        let (mut totals, mut begun) = (Totals::default(), Instant::now());
        totals.print("", interval, SystemClock.now());
        let mut bytes = Vec::new();
        while next_line(&mut log, &mut bytes).context("the mount does not go on")? {
            if let Some(line) = parse(&String::from_utf8_lossy(&bytes)).filter(|line| self.wants(line)) {
                totals.add(&line);
            }
            if begun.elapsed() >= interval {
                totals.print("", begun.elapsed(), SystemClock.now());
                (totals, begun) = (Totals::default(), Instant::now());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the tables of a log, by the times that stand in it.
    fn replay(&self, mut log: impl BufRead, path: &Path) -> Result<ExitCode> {
        let interval = Duration::from_secs(self.interval);
        let mut totals = Totals::default();
        let mut span: Option<(Time, Time)> = None;
        let (mut understood, mut strange) = (0u64, 0u64);
        let mut bytes = Vec::new();
        while next_line(&mut log, &mut bytes)? {
            let text = String::from_utf8_lossy(&bytes);
            let Some(line) = parse(&text) else {
                strange += u64::from(text.trim() != "#" && !text.trim().is_empty());
                continue;
            };
            understood += 1;
            if !self.wants(&line) {
                continue;
            }
            let (first, _) = *span.get_or_insert((line.at, line.at));
            if self.interval > 0 && line.at.since(first) >= interval {
                totals.print("replay", interval, first);
                totals = Totals::default();
                // Intervals in which nothing happened are not shown.
                let passed = line.at.since(first).as_secs() / self.interval * self.interval;
                span = Some((Time { sec: first.sec + passed as i64, ..first }, line.at));
            }
            totals.add(&line);
            if let Some((_, last)) = &mut span {
                *last = line.at;
            }
        }
        if understood == 0 {
            bail!(
                "{} has no line of an access log; make one with `cat MOUNTPOINT/.accesslog`",
                path.display()
            );
        }
        match span {
            Some((first, last)) => {
                let interval = if self.interval > 0 { interval } else { last.since(first) };
                totals.print("replay done", interval, first);
            }
            None => outln!("none of the {understood} operations is of these users, groups or processes"),
        }
        if strange > 0 {
            tracing::warn!("{strange} lines of {} were not understood and are left out", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn wants(&self, line: &Line<'_>) -> bool {
        let among = |wanted: &[u32], id: u32| wanted.is_empty() || wanted.contains(&id);
        among(&self.uid, line.ids[0]) && among(&self.gid, line.ids[1]) && among(&self.pid, line.ids[2])
    }
}

/// Reads a line into `bytes`, without what is beyond the longest; false at the end.
fn next_line(log: &mut impl BufRead, bytes: &mut Vec<u8>) -> Result<bool> {
    bytes.clear();
    Ok(log.by_ref().take(LONGEST).read_until(b'\n', bytes)? > 0)
}

/// Reads `2026.01.31 12:00:00.000001 [uid:0,gid:0,pid:1] read (…) - OK <0.000003>`.
fn parse(line: &str) -> Option<Line<'_>> {
    let (line, took) = line.trim_end().strip_suffix('>')?.rsplit_once(" <")?;
    let micros = Duration::try_from_secs_f64(took.parse().ok()?).ok()?.as_micros() as u64;
    let mut words = line.split(' ');
    let (day, time, ids, operation) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let mut ids = ids.strip_prefix("[uid:")?.strip_suffix(']')?.split([',', ':']);
    let mut id = |name: &str| {
        if !name.is_empty() && ids.next()? != name {
            return None;
        }
        ids.next()?.parse().ok()
    };
    let ids = [id("")?, id("gid")?, id("pid")?];
    Some(Line { at: Time::from_utc(TIME, &format!("{day} {time}"))?, ids, operation, micros })
}

impl Totals {
    fn add(&mut self, line: &Line<'_>) {
        let count = |(count, micros): &mut (u64, u64)| {
            *count += 1;
            *micros += line.micros;
        };
        if let Some(known) = self.0.get_mut(line.operation) {
            count(known);
        } else if self.0.len() < OPERATIONS {
            count(self.0.entry(line.operation.to_owned()).or_default());
        }
    }

    /// The lines of a table, those that took longest first.
    fn rows(&self, interval: Duration) -> Vec<String> {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by_key(|(_, (_, micros))| std::cmp::Reverse(*micros));
        let whole = (interval.as_micros() as f64).max(1.0);
        let row = |(name, (count, micros)): (&String, &(u64, u64))| {
            let mean = *micros as f64 / *count as f64;
            let share = 100.0 * *micros as f64 / whole;
            format!("{name:<16} {count:>10} {mean:>15.0} {micros:>18} {share:>12.1}")
        };
        sorted.into_iter().map(row).collect()
    }

    fn print(&self, state: &str, interval: Duration, at: Time) {
        if state.is_empty() && std::io::stdout().is_terminal() {
            out!("{CLEAR}");
        }
        let seconds = interval.as_secs_f64();
        outln!("> {} {state:>13}  {seconds:.0} seconds", at.utc("%Y-%m-%dT%H:%M:%S"));
        outln!(
            "{:<16} {:>10} {:>15} {:>18} {:>12}",
            "Operation",
            "Count",
            "Average(us)",
            "Total(us)",
            "Percent(%)"
        );
        for row in self.rows(interval) {
            outln!("{row}");
        }
        outln!("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_programs_are_read() {
        let line =
            "2024.02.29 12:34:56.000007 [uid:1,gid:20,pid:300] write (17,12288,4096,5): 0 - OK <0.001500>";
        let read = parse(line).unwrap();
        assert_eq!((read.ids, read.operation, read.micros), ([1, 20, 300], "write", 1500));
        assert_eq!(read.at, Time { sec: 1_709_210_096, nsec: 7000 });
        let odd =
            "2024.02.29 12:34:56.000007 [uid:1,gid:20,pid:300] lookup (1,a <9> [uid:7,): - OK <0.000001>\n";
        assert_eq!(parse(odd).map(|line| (line.ids[0], line.micros)), Some((1, 1)));
        for wrong in
            ["", "#", "# a remark", &line[..40], &line.replace("uid", "u"), &line.replace("02.29", "02.30")]
        {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_took_longest_comes_first() {
        let mut totals = Totals::default();
        let at = Time::default();
        for (operation, micros) in [("read", 10), ("write", 500), ("read", 30)] {
            totals.add(&Line { at, ids: [0; 3], operation, micros });
        }
        let rows = totals.rows(Duration::from_millis(1));
        let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(
            rows.iter().map(|row| words(row)).collect::<Vec<_>>(),
            ["write 1 500 500 50.0", "read 2 20 40 4.0"]
        );
    }
}
