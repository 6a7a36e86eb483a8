//! `sluice bench-meta`: measures how long each operation on a volume's metadata takes.
//!
//! What must stay true: everything that it creates is removed at the end, also after an error or a
//! signal. Only the operation that a row is named after is timed.

mod beside;
mod rows;
mod scratch;

use std::{
    panic::resume_unwind,
    process::ExitCode,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use sluice_meta::{Interrupt, Meta, schema::VolumeFormat};
use sluice_types::{Clock, FsError, FsResult, SystemClock};
use sluice_vfs::MetaIndex;

use self::{
    beside::Beside,
    rows::{Place, ROWS, Row, Work},
    scratch::Scratch,
};
use crate::{engines, progress::Progress, signals, sizes, table, volume};

/// Measure the operations on a volume's metadata
#[derive(Args)]
#[command(after_help = "Example:\n  sluice bench-meta mem:// --threads 8")]
pub(crate) struct BenchMeta {
    /// Metadata engine of a volume; mem:// measures Sluice alone, on a volume in memory
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Operations to measure, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = named, hide_possible_values = true)]
    rows: Vec<&'static Row>,
    /// How long each operation is measured in each round
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sizes::duration)]
    duration: Duration,
    /// How often each operation is measured in each round, instead of how long
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Rounds; what is shown are medians
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// Threads, each in a directory of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The row of that name.
fn named(name: &str) -> Result<&'static Row, String> {
    let names = || ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
    ROWS.iter().find(|row| row.name == name).ok_or_else(|| format!("the operations are {}", names()))
}

/// The length of a turn.
#[derive(Clone, Copy)]
enum Length {
    Operations(u64),
    Time(Duration),
}

/// The result of a turn.
#[derive(Clone, Copy, Default)]
struct Taken {
    operations: u64,
    time: Duration,
}

impl Taken {
    fn micros(self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }
}

/// All results.
#[derive(Serialize)]
struct Report {
    engine: &'static str,
    threads: usize,
    rounds: usize,
    rows: Vec<Figure>,
}

/// The result of one operation, in microseconds as one thread sees it.
#[derive(Serialize)]
struct Figure {
    name: &'static str,
    /// Median of the rounds.
    us: f64,
    least_us: f64,
    most_us: f64,
    /// Operations in all rounds and threads.
    operations: u64,
}

impl BenchMeta {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(self.threads > 0 && self.rounds > 0, "at least one thread and one round");
        let engine = engines::open(&self.meta_url)?;
        if engine.name() == "mem" {
            // It begins empty, and ends with this process.
            let (name, uuid) = ("mem".to_owned(), volume::new_uuid());
            let format = VolumeFormat { name, uuid, dir_stats: true, ..VolumeFormat::default() };
            Meta::format(engine.as_ref(), &format, SystemClock.now())?;
        }
        let interrupt = signals::interrupt()?;
        let meta = volume::open_engine(engine, "bench-meta", false)?;
        let rows = self.in_scratch(&meta, &interrupt);
        let closed = meta.close();
        let report =
            Report { engine: meta.engine_name(), threads: self.threads, rounds: self.rounds, rows: rows? };
        closed?;
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            report.print();
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Measures in a directory that is removed afterwards.
    fn in_scratch(&self, meta: &Arc<Meta>, interrupt: &Interrupt) -> Result<Vec<Figure>> {
        let scratch = Scratch::new(meta)?;
        let measured = thread::scope(|scope| {
            let beside = Beside::new(Arc::clone(meta));
            let running = beside.handle();
            scope.spawn(move || beside.run());
            self.measure(meta, &scratch, &running, interrupt)
        });
        let removed = scratch.remove();
        let measured = measured?;
        removed?;
        Ok(measured)
    }

    fn measure(
        &self,
        meta: &Arc<Meta>,
        scratch: &Scratch<'_>,
        beside: &beside::Handle,
        interrupt: &Interrupt,
    ) -> Result<Vec<Figure>> {
        let rows: Vec<&'static Row> =
            if self.rows.is_empty() { ROWS.iter().collect() } else { self.rows.clone() };
        let length = self.iterations.map_or(Length::Time(self.duration), Length::Operations);
        let index = MetaIndex::new(Arc::clone(meta));
        let progress = Progress::new("measure", Some((rows.len() * self.rounds) as u64));
        let mut taken = vec![Vec::new(); rows.len()];
        for _ in 0..self.rounds {
            for (row, taken) in rows.iter().zip(&mut taken) {
                let place = |dir| Place {
                    meta: Arc::clone(meta),
                    index: Arc::clone(&index),
                    beside: beside.clone(),
                    interrupt: interrupt.clone(),
                    dir,
                };
                let turns = scratch.in_directories(row.name, self.threads, |dirs| {
                    let places = dirs.iter().map(|dir| place(*dir)).collect();
                    let turns = together(row, places, length);
                    beside.finish().and(turns)
                });
                ensure!(!interrupt.is_set(), "interrupted");
                taken.push(turns.with_context(|| format!("cannot measure {}", row.name))?);
                progress.add(1);
            }
        }
        progress.finish();
        Ok(rows.iter().zip(taken).map(|(row, taken)| Figure::new(row.name, &taken)).collect())
    }
}

/// One turn of each thread at a row.
fn together(row: &Row, places: Vec<Place>, length: Length) -> FsResult<Vec<Taken>> {
    let ready = Barrier::new(places.len());
    let begin = |place: Place| {
        let interrupt = place.interrupt.clone();
        let work = (row.work)(place);
        // A thread that cannot begin must not keep the others waiting.
        ready.wait();
        turn(&mut work?, length, &interrupt)
    };
    thread::scope(|scope| {
        let begin = &begin;
        let turns: Vec<_> = places.into_iter().map(|place| scope.spawn(move || begin(place))).collect();
        turns.into_iter().map(|turn| turn.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Operations are timed in groups of about this length, so that reading the clock costs almost
/// nothing.
const STRETCH: Duration = Duration::from_millis(1);

/// Repeats an operation. The first few repetitions do not count, because they fetch connections,
/// statements and numbers.
fn turn(work: &mut Work, length: Length, interrupt: &Interrupt) -> FsResult<Taken> {
    let warm_up = match length {
        Length::Operations(count) => Length::Operations(count.div_ceil(10)),
        Length::Time(time) => Length::Time(time / 10),
    };
    let mut number = 0;
    repeat(work, warm_up, &mut number, interrupt)?;
    repeat(work, length, &mut number, interrupt)
}

fn repeat(work: &mut Work, length: Length, number: &mut u64, interrupt: &Interrupt) -> FsResult<Taken> {
    let mut taken = Taken::default();
    let mut together = 1;
    loop {
        let left = match length {
            Length::Operations(count) => count - taken.operations,
            Length::Time(time) => u64::from(taken.time < time) * together,
        };
        if left == 0 {
            return Ok(taken);
        }
        if interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        if let Some(before) = &mut work.before {
            before(*number)?;
            together = 1;
        }
        let count = together.min(left);
        let start = Instant::now();
        for number in *number..*number + count {
            (work.operation)(number)?;
        }
        let time = start.elapsed();
        *number += count;
        taken.operations += count;
        taken.time += time;
        if time < STRETCH {
            together *= 2;
        }
    }
}

impl Figure {
    /// From what each thread took in each round.
    fn new(name: &'static str, rounds: &[Vec<Taken>]) -> Self {
        let of_round = |turns: &Vec<Taken>| {
            let add = |sum: Taken, turn: &Taken| Taken {
                operations: sum.operations + turn.operations,
                time: sum.time + turn.time,
            };
            turns.iter().fold(Taken::default(), add)
        };
        let rounds: Vec<Taken> = rounds.iter().map(of_round).collect();
        let mut micros: Vec<f64> = rounds.iter().map(|round| round.micros()).collect();
        micros.sort_by(f64::total_cmp);
        Self {
            name,
            us: f64::midpoint(micros[(micros.len() - 1) / 2], micros[micros.len() / 2]),
            least_us: micros[0],
            most_us: micros[micros.len() - 1],
            operations: rounds.iter().map(|round| round.operations).sum(),
        }
    }
}

impl Report {
    fn print(&self) {
        outln!("engine {}, threads {}, rounds {}", self.engine, self.threads, self.rounds);
        let head = ["OPERATION", "µs", "LEAST", "MOST", "PER SECOND", "MEASURED"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for figure in &self.rows {
            let rate = self.threads as f64 * 1e6 / figure.us;
            let micros = [figure.us, figure.least_us, figure.most_us].map(|us| format!("{us:.2}"));
            let counts = [format!("{rate:.0}"), figure.operations.to_string()];
            rows.push([&[figure.name.to_owned()][..], &micros, &counts].concat());
        }
        table::print(&rows, &[0]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn as_many_as_asked_for_are_timed_each_after_its_preparation() {
        static PREPARED: AtomicU64 = AtomicU64::new(0);
        let mut done = Vec::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut work = Work {
            before: Some(Box::new(|number| {
                assert_eq!(PREPARED.fetch_add(1, Ordering::Relaxed), number);
                Ok(())
            })),
            operation: Box::new(move |number| {
                assert_eq!(PREPARED.load(Ordering::Relaxed), number + 1);
                sender.send(number).map_err(FsError::io)
            }),
        };
        let taken = turn(&mut work, Length::Operations(20), &Interrupt::never()).expect("nothing fails");
        assert_eq!(taken.operations, 20);
        done.extend(receiver.try_iter());
        assert_eq!(done, (0..22).collect::<Vec<_>>(), "and two before");
    }

    #[test]
    fn figures_are_medians_of_what_one_operation_takes() {
        let taken = |operations, micros| Taken { operations, time: Duration::from_micros(micros) };
        let rounds = [vec![taken(10, 100), taken(10, 300)], vec![taken(20, 20)], vec![taken(2, 60)]];
        let figure = Figure::new("mkdir", &rounds);
        assert_eq!((figure.us, figure.least_us, figure.most_us, figure.operations), (20.0, 1.0, 30.0, 42));
    }
}
