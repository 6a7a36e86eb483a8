//! Lets a signal end the long work of a command.
//!
//! What must stay true: after the first signal, the command cleans up and ends. A second signal
//! ends it at once.

use std::{fs, path::PathBuf, process, thread};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_types::Interrupt;

/// What a shell reports of a command that a signal ended: 128 and the signal's number.
const SIGNALLED: i32 = 128;

/// An interrupt that Ctrl-C, SIGTERM and the end of the terminal set, the latter unless `nohup` had
/// it ignored.
pub(crate) fn interrupt() -> Result<Interrupt> {
    let interrupt = Interrupt::never();
    let (mut signals, set) = (signals()?, interrupt.clone());
    start(move || {
        for (number, signal) in signals.forever().enumerate() {
            if number > 0 {
                process::exit(SIGNALLED + signal);
            }
            errln!("sluice: ending; once more to end at once");
            set.set();
        }
    })?;
    Ok(interrupt)
}

/// Has these signals remove `file` before they end this process.
pub(crate) fn remove_when_ended(file: PathBuf) -> Result<()> {
    let mut signals = signals()?;
    start(move || {
        if let Some(signal) = signals.forever().next() {
            // It may be complete and have another name by now.
            let _ = fs::remove_file(file);
            process::exit(SIGNALLED + signal);
        }
    })
}

fn signals() -> Result<Signals> {
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)).context("cannot listen to signals")
}

fn start(listen: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name("sluice-signals".into()).spawn(listen)?;
    Ok(())
}

/// Whether this process was started with SIGHUP ignored. The line `SigIgn` of proc_pid_status(5)
/// has a bit for each signal, the lowest for SIGHUP.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
