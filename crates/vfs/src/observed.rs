//! Counts one operation, and writes its line in the access log.

use std::time::{Duration, Instant};

use sluice_types::{Caller, FsResult};

use crate::observe::{NAMES, OpKind};
use crate::vfs::Vfs;

impl Vfs {
    /// Runs one operation of the kernel, counts it, and writes its line if a program reads the
    /// access log. `describe` gets the result, and fills in the middle part of the line.
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
        let errno = done.as_ref().err().map(sluice_types::FsError::errno);
        self.observed.count(op, took, errno);
        if self.log.is_read() {
            let mut text = String::with_capacity(160);
            describe(&mut text, done.as_ref().ok());
            self.write_log(op, caller, &text, errno, took);
        }
        done
    }

    fn write_log(&self, op: OpKind, caller: &Caller, text: &str, errno: Option<i32>, took: Duration) {
        let now = self.now().utc("%Y.%m.%d %H:%M:%S%.6f");
        let Caller { uid, gid, pid, .. } = caller;
        let name = NAMES[op as usize];
        let result = errno.map_or_else(|| "OK".to_owned(), message);
        let seconds = took.as_secs_f64();
        self.log
            .write(&format!("{now} [uid:{uid},gid:{gid},pid:{pid}] {name} {text} - {result} <{seconds:.6}>"));
    }
}

/// The system's message for an error number, as in C.
fn message(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
