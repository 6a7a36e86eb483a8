//! Runs a number of seeds: `sluice-simulate [--seeds N] [--seed FIRST] [--threads N] [--verbose]`.

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use sluice_simulate::{Plan, simulate};

/// What was asked for.
struct Wanted {
    first: u64,
    seeds: u64,
    threads: u64,
    verbose: bool,
    /// Faults after which to stop.
    most: usize,
}

fn wanted() -> Result<Wanted, String> {
    let mut wanted = Wanted { first: 0, seeds: 1, threads: 1, verbose: false, most: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse::<u64>().ok());
            value.ok_or_else(|| format!("{word} wants a number"))
        };
        match word.as_str() {
            "--seed" => wanted.first = number()?,
            "--seeds" => wanted.seeds = number()?,
            "--threads" => wanted.threads = number()?.max(1),
            "--most" => wanted.most = number()? as usize,
            "--verbose" => wanted.verbose = true,
            _ => return Err(format!("{word}: say --seed, --seeds, --threads, --most or --verbose")),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    let wanted = match wanted() {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    let bad = Mutex::new(Vec::new());
    let found = || bad.lock().map_or(usize::MAX, |bad: std::sync::MutexGuard<'_, Vec<u64>>| bad.len());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= wanted.seeds || found() >= wanted.most {
                return;
            }
            let seed = wanted.first + at;
            let outcome = simulate(seed, wanted.verbose);
            outcome.events.iter().for_each(|line| println!("{line}"));
            if !outcome.faults.is_empty() {
                println!("seed {seed} ({:?}): {}", Plan::of(seed).theme, outcome.faults.join("\n  "));
                if let Ok(mut bad) = bad.lock() {
                    bad.push(seed);
                }
            }
        }
    };
    thread::scope(|scope| (0..wanted.threads).for_each(|_| drop(scope.spawn(work))));
    let run = next.load(Ordering::Relaxed).min(wanted.seeds);
    println!(
        "{run} seeds from {} in {:.1} s, {} with faults",
        wanted.first,
        begun.elapsed().as_secs_f64(),
        found()
    );
    if found() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
