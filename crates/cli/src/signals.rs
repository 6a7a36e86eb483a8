//! Long work of a command that a signal ends.
//!
//! What must stay true: the first signal lets the command end in order; a second one ends it at
//! once.

use std::{process, thread};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_types::Interrupt;

/// What a shell reports of a command that a signal ended: 128 and the signal's number.
const SIGNALLED: i32 = 128;

/// An interrupt that Ctrl-C and SIGTERM set.
pub(crate) fn interrupt() -> Result<Interrupt> {
    let interrupt = Interrupt::never();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let set = interrupt.clone();
    thread::Builder::new().name("sluice-signals".into()).spawn(move || {
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
