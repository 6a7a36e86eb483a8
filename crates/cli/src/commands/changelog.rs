//! `sluice changelog`: prints the lines of the change log, then prints new lines as they are added.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use sluice_meta::{
    Interrupt,
    engine::{ChangeLog, EngineError},
};

use crate::{engines, signals, volume};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// Lines read at once.
const PAGE: usize = 1000;

/// Print what the change log of a volume says, and what it says from now on
///
/// A volume has one once `sluice config META-URL --changelog` has switched it on.
#[derive(Args)]
#[command(after_help = "Examples:
  sluice changelog redis://localhost/1
  sluice changelog redis://localhost/1 --from 100")]
pub(crate) struct Changelog {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Begin behind the line with this number; 0 begins behind the last one
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
}

impl Changelog {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let engine = engines::open(&self.meta_url)?;
        let format = volume::format_of(engine.as_ref())?;
        ensure!(
            format.change_log,
            "the volume has no change log; switch it on with `sluice config META-URL --changelog`"
        );
        let log = engine.change_log().with_context(|| format!("{} keeps no change log", engine.name()))?;
        let from = if self.from > 0 { self.from } else { log.last()? };
        let mut follow = Follow { log, last: from, seen: BTreeSet::new() };
        let interrupt = signals::interrupt()?;
        let mut away = false;
        while !interrupt.is_set() {
            match follow.look(&interrupt) {
                Ok(()) => away = false,
                Err(error @ (EngineError::Unavailable { .. } | EngineError::Indeterminate { .. })) => {
                    if !std::mem::replace(&mut away, true) {
                        errln!("sluice: {error}; trying again until it answers");
                    }
                }
                Err(error) => return Err(error.into()),
            }
            interrupt.sleep(PAUSE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How far the log was printed.
struct Follow<'l> {
    log: &'l dyn ChangeLog,
    /// The highest number printed.
    last: u64,
    /// Numbers printed that others may still come before.
    seen: BTreeSet<u64>,
}

impl Follow<'_> {
    /// Prints what is new by now: who writes all the time must not keep this from its end.
    fn look(&mut self, interrupt: &Interrupt) -> Result<(), EngineError> {
        let until = self.log.last()?;
        let mut at = self.log.settled(self.last);
        while at < until && !interrupt.is_set() {
            let lines = self.log.lines(at, PAGE)?;
            let Some(end) = lines.last() else { break };
            at = end.number;
            for line in lines {
                if self.seen.insert(line.number) {
                    outln!("{}: {}", line.number, String::from_utf8_lossy(&line.text));
                    self.last = self.last.max(line.number);
                }
            }
            self.seen = self.seen.split_off(&self.log.settled(self.last));
        }
        Ok(())
    }
}
