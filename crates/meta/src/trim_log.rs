//! Trims the change log: by the age of its lines and by their count.
//!
//! What must stay true: lines are removed from the oldest on, so that the remaining lines have no
//! gap.

use sluice_types::FsResult;

use crate::{batch::Interrupt, engine::LogLine, meta::Meta, ops::allocate::TakeTurn, schema::Counter};

/// Lines looked at together.
const PAGE: usize = 1000;
/// Shortest time between two turns, seconds.
const INTERVAL: i64 = 270;

impl Meta {
    /// Removes lines of the change log that are older than the volume keeps them, and the first of
    /// those that are too many. Nothing if another client did so in the last minutes.
    ///
    /// # Errors
    /// The engine's. Some lines may be gone.
    pub fn trim_log(&self, interrupt: &Interrupt) -> FsResult<()> {
        let format = self.env.format();
        let (age, most) = (format.change_log_max_age, format.change_log_max_lines);
        let Some(log) = self.engine.change_log() else { return Ok(()) };
        if !format.change_log || age <= 0 && most <= 0 || self.is_read_only() {
            return Ok(());
        }
        let now = self.env.clock.now().sec;
        let turn = TakeTurn { job: Counter::LastCleanupChangelog, due: now - INTERVAL, now };
        if !self.run(turn, interrupt)? {
            return Ok(());
        }
        let mut excess = 0;
        if most > 0 {
            let count = self.retry(interrupt, || log.count())?;
            excess = count.saturating_sub(most as u64) as usize;
        }
        let is_old = |line: &LogLine| age > 0 && made(line).is_some_and(|made| made < now - age);
        // After this turn another client may count the excess and remove it, too.
        while !interrupt.is_set() && self.env.clock.now().sec < now + INTERVAL {
            let lines = self.retry(interrupt, || log.lines(0, PAGE))?;
            let old = lines.iter().take_while(|line| is_old(line)).count();
            let gone = old.max(excess.min(lines.len()));
            let Some(last) = gone.checked_sub(1) else { break };
            self.retry(interrupt, || log.trim(lines[last].number))?;
            excess = excess.saturating_sub(gone);
            if gone < lines.len() {
                break;
            }
        }
        Ok(())
    }
}

/// When a line was made, Unix seconds; `None` if it does not say so.
fn made(line: &LogLine) -> Option<i64> {
    let digits = line.text.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
