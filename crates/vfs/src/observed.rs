//! An operation that is counted, and its line in the access log.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use sluice_types::{Caller, FsResult};

use crate::observe::{NAMES, OpKind};
use crate::vfs::Vfs;

impl Vfs {
    /// Runs one operation of the kernel's, counts it, and writes its line if somebody reads the
    /// access log. `describe` gets the line's middle part to fill, and the answer.
    pub fn observed<T>(
        &self,
        op: OpKind,
        caller: &Caller,
        run: impl FnOnce() -> FsResult<T>,
        describe: impl FnOnce(&mut String, Option<&T>),
    ) -> FsResult<T> {
        let begin = Instant::now();
        let done = run();
        let took = begin.elapsed();
        let counts = &self.observed.ops[op as usize];
        counts.count.fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        if done.is_err() {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
        if self.log.is_read() {
            let mut text = String::with_capacity(160);
            describe(&mut text, done.as_ref().ok());
            self.write_log(op, caller, &text, done.as_ref().err().map(sluice_types::FsError::errno), took);
        }
        done
    }

    fn write_log(&self, op: OpKind, caller: &Caller, text: &str, errno: Option<i32>, took: Duration) {
        let now = self.now();
        let (days, second) = (now.sec.div_euclid(86_400), now.sec.rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = now.nsec / 1000;
        let Caller { uid, gid, pid, .. } = caller;
        let name = NAMES[op as usize];
        let result = errno.map_or_else(|| "OK".to_owned(), message);
        let seconds = took.as_secs_f64();
        self.log.write(&format!(
            "{year:04}.{month:02}.{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} \
             [uid:{uid},gid:{gid},pid:{pid}] {name} {text} - {result} <{seconds:.6}>"
        ));
    }
}

/// The system's words for an error number, as C has them.
fn message(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The date (UTC) that many days after the epoch.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}
