//! `sluice stats`: shows what a mount does now, one line per interval.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use sluice_types::{Clock, SystemClock};

use crate::internal_file;

/// Lines after which the head is shown again.
const LINES: u64 = 30;
/// How the time is shown.
const TIME: &str = "%m-%d %H:%M:%S";
/// Width of a time and of all other cells.
const WIDTHS: (usize, usize) = (14, 5);

/// Show what a mount does at the moment
#[derive(Args)]
#[command(after_help = "Example, ten lines with everything there is, five seconds apart:
  sluice stats /mnt/vol --schema tufmco -l 1 --interval 5 -c 10

Sizes are bytes, rates are by the second, `lat` is the mean time of one in milliseconds.")]
pub(crate) struct Stats {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Sections to show: t time, u usage, f requests of the kernel, m metadata, c cache, o objects
    #[arg(long, value_name = "LETTERS", default_value = "ufmco", value_parser = schema)]
    schema: Schema,
    /// Seconds between two lines
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
    /// 1 for more columns
    #[arg(short = 'l', long, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Lines to show; 0 for no end
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    count: u64,
}

/// Letters of sections.
#[derive(Clone)]
struct Schema(Vec<char>);

fn schema(text: &str) -> Result<Schema, String> {
    match text.chars().find(|letter| !"tufmcog".contains(*letter)) {
        Some(wrong) => Err(format!("there is no section {wrong:?}; there are t, u, f, m, c and o")),
        // `g` shows the memory of another language's runtime.
        None => Ok(Schema(text.chars().filter(|letter| *letter != 'g').collect())),
    }
}

/// How a number becomes a cell.
#[derive(Clone, Copy)]
enum Form {
    /// The time of the line.
    Time,
    /// Bytes as they are.
    Bytes,
    /// Bytes by the second.
    ByteRate,
    /// Events by the second, of all names that begin so.
    Rate,
    /// Share of a processor.
    Cpu,
    /// Events by the second and their mean time: two cells.
    Times,
}

/// Head of a column, name of the metric, and form.
type Column = (&'static str, &'static str, Form);

struct Section {
    name: &'static str,
    columns: Vec<Column>,
}

/// A section with its columns; those of the second list only in full.
fn section(letter: char, full: bool) -> Section {
    use Form::{ByteRate, Bytes, Cpu, Rate, Time, Times};
    let (name, columns): (_, &[(Column, bool)]) = match letter {
        't' => ("system", &[(("time", "", Time), false)]),
        'u' => (
            "usage",
            &[
                (("cpu", "juicefs_cpu_usage", Cpu), false),
                (("mem", "juicefs_memory", Bytes), false),
                (("buf", "juicefs_used_buffer_size_bytes", Bytes), false),
                (("cache", "juicefs_store_cache_size_bytes", Bytes), true),
            ],
        ),
        'f' => (
            "fuse",
            &[
                (("ops", "juicefs_fuse_ops_durations_histogram_seconds", Times), false),
                (("read", "juicefs_fuse_read_size_bytes_sum", ByteRate), false),
                (("write", "juicefs_fuse_written_size_bytes_sum", ByteRate), false),
            ],
        ),
        'm' => (
            "meta",
            &[
                (("ops", "juicefs_meta_ops_durations_histogram_seconds", Times), false),
                (("txn", "juicefs_transaction_durations_histogram_seconds", Times), true),
                (("retry", "juicefs_transaction_restart", Rate), true),
            ],
        ),
        'c' => (
            "blockcache",
            &[
                (("read", "juicefs_blockcache_hit_bytes", ByteRate), false),
                (("write", "juicefs_blockcache_write_bytes", ByteRate), false),
            ],
        ),
        _ => (
            "object",
            &[
                (("get", "juicefs_object_request_data_bytes_GET", ByteRate), false),
                (("get_c", "juicefs_object_request_durations_histogram_seconds_GET", Times), true),
                (("put", "juicefs_object_request_data_bytes_PUT", ByteRate), false),
                (("put_c", "juicefs_object_request_durations_histogram_seconds_PUT", Times), true),
                (("del_c", "juicefs_object_request_durations_histogram_seconds_DELETE", Times), true),
            ],
        ),
    };
    let columns = columns.iter().filter(|(_, more)| full || !more).map(|(column, _)| *column).collect();
    Section { name, columns }
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.schema.0.is_empty() {
            bail!("--schema names no section; there are t, u, f, m, c and o");
        }
        let mountpoint = internal_file::mount_of(&self.mountpoint)?;
        let sections: Vec<Section> =
            self.schema.0.iter().map(|letter| section(*letter, self.verbosity > 0)).collect();
        let mut before = sample(&mountpoint)?;
        for line in 0.. {
            // The first shows what there was since the mount began only as sizes.
            if line > 0 {
                thread::sleep(Duration::from_secs(self.interval));
            }
            let now = if line > 0 { sample(&mountpoint)? } else { before.clone() };
            if line % LINES == 0 {
                outln!("{}", head(&sections));
            }
            outln!("{}", cells(&sections, &before, &now));
            before = now;
            if self.count > 0 && line + 1 >= self.count {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The numbers of a mount at one time.
#[derive(Clone)]
struct Sample {
    at: Instant,
    numbers: BTreeMap<String, f64>,
}

fn sample(mountpoint: &Path) -> Result<Sample> {
    let text = internal_file::read(mountpoint, "stats")
        .with_context(|| format!("{} does not show its numbers", mountpoint.display()))?;
    Ok(Sample { at: Instant::now(), numbers: internal_file::numbers(&text) })
}

impl Sample {
    fn get(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(0.0)
    }

    /// The sum of all whose names begin so.
    fn sum(&self, prefix: &str) -> f64 {
        let from = self.numbers.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix)).map(|(_, number)| number).sum()
    }
}

fn head(sections: &[Section]) -> String {
    let (mut names, mut columns) = (Vec::new(), Vec::new());
    for section in sections {
        let mut heads = Vec::new();
        for (head, _, form) in &section.columns {
            match form {
                Form::Time => heads.push(format!("{head:^0$}", WIDTHS.0)),
                Form::Times => heads.extend([format!("{head:^0$}", WIDTHS.1), " lat ".to_owned()]),
                _ => heads.push(format!("{head:^0$}", WIDTHS.1)),
            }
        }
        let heads = heads.join(" ");
        names.push(format!("{:-^1$}", section.name, heads.len()));
        columns.push(heads);
    }
    format!("{}\n{}", names.join(" "), columns.join("|"))
}

fn cells(sections: &[Section], before: &Sample, now: &Sample) -> String {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let rate = |difference: f64| if seconds > 0.0 { difference / seconds } else { 0.0 };
    let change = |name: &str| now.get(name) - before.get(name);
    let mut line = Vec::new();
    for section in sections {
        let mut cells = Vec::new();
        for (_, name, form) in &section.columns {
            match form {
                Form::Time => cells.push(SystemClock.now().utc(TIME)),
                Form::Bytes => cells.push(size(now.get(name), 'B')),
                Form::ByteRate => cells.push(size(rate(change(name)), 'B')),
                Form::Rate => cells.push(size(rate(now.sum(name) - before.sum(name)), ' ')),
                Form::Cpu => cells.push(format!("{:>4.1}%", 100.0 * rate(change(name)).max(0.0))),
                Form::Times => {
                    let count = change(&format!("{name}_total"));
                    let mean = if count > 0.0 { change(&format!("{name}_sum")) / count } else { 0.0 };
                    cells.extend([size(rate(count), ' '), millis(1000.0 * mean)]);
                }
            }
        }
        line.push(cells.join(" "));
    }
    line.join("|")
}

/// Four digits and a unit of 1024.
fn size(number: f64, one: char) -> String {
    let mut number = number.max(0.0) as u64;
    for unit in [one, 'K', 'M', 'G', 'T'] {
        if number < 10_000 {
            return format!("{number:>4}{unit}");
        }
        number >>= 10;
    }
    format!("{number:>4}P")
}

/// Milliseconds in four characters, and a space.
fn millis(time: f64) -> String {
    match time {
        time if time <= 0.0 => "   0 ".to_owned(),
        time if time < 10.0 => format!("{time:4.2} "),
        time if time < 100.0 => format!("{time:4.1} "),
        time if time < 10_000.0 => format!("{time:4.0} "),
        time => format!("{:4.0}s", time / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_wide_as_their_heads() {
        let numbers = |factor: f64| {
            let text = format!(
                "juicefs_cpu_usage {}\njuicefs_memory 104857600\n\
                 juicefs_fuse_ops_durations_histogram_seconds_total {}\n\
                 juicefs_fuse_ops_durations_histogram_seconds_sum {}\n\
                 juicefs_transaction_restart_Write {}\njuicefs_transaction_restart_Unlink {}\n",
                0.5 * factor,
                1000.0 * factor,
                2.5 * factor,
                3.0 * factor,
                4.0 * factor
            );
            internal_file::numbers(&text)
        };
        let at = Instant::now();
        let before = Sample { at, numbers: numbers(1.0) };
        let now = Sample { at: at + Duration::from_secs(2), numbers: numbers(3.0) };
        let sections: Vec<Section> = "tufmco".chars().map(|letter| section(letter, true)).collect();
        let (head, line) = (head(&sections), cells(&sections, &before, &now));
        let widths: Vec<usize> = head.lines().chain([line.as_str()]).map(str::len).collect();
        assert_eq!(widths[0], widths[1], "{head}");
        assert_eq!(widths[1], widths[2], "{head}\n{line}");
        let cells = &line[WIDTHS.0..];
        let expected = "|50.0%  100M    0B    0B|1000  2.50     0B    0B|   0     0     0     0     7 |   0B    \
                        0B|   0B    0     0     0B    0     0     0     0 ";
        assert_eq!(cells, expected);
    }

    #[test]
    fn numbers_have_four_digits() {
        for (number, text) in [(0.0, "   0B"), (9999.0, "9999B"), (10_000.0, "   9K"), (1e12, " 931G")] {
            assert_eq!(size(number, 'B'), text);
        }
        assert_eq!(millis(123_456.0), " 123s");
        assert_eq!(millis(0.123), "0.12 ");
    }

    #[test]
    fn unknown_sections_are_refused() {
        assert!(schema("ux").is_err());
        assert_eq!(schema("ugo").map(|schema| schema.0), Ok(vec!['u', 'o']));
    }
}
