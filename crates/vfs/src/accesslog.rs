//! The access log: one line for each operation, for programs that read `.accesslog`.
//!
//! What must stay true: it costs one atomic load while no program reads, and a reader that is too
//! slow loses lines, so that memory stays bounded.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use sluice_types::printable;

/// Lines kept for a reader.
const MAX_LINES: usize = 10_240;
/// How long a read waits for a line.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// All readers of the log.
#[derive(Default)]
pub(crate) struct AccessLog {
    count: AtomicUsize,
    readers: Mutex<Vec<Arc<LogReader>>>,
}

/// One open `.accesslog`.
#[derive(Default)]
pub(crate) struct LogReader {
    lines: Mutex<VecDeque<String>>,
    more: Condvar,
}

impl AccessLog {
    /// Whether any program reads the log.
    pub(crate) fn is_read(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn open(&self) -> Arc<LogReader> {
        let reader = Arc::<LogReader>::default();
        self.readers.lock().push(Arc::clone(&reader));
        self.count.fetch_add(1, Ordering::Relaxed);
        reader
    }

    pub(crate) fn close(&self, reader: &Arc<LogReader>) {
        self.readers.lock().retain(|other| !Arc::ptr_eq(other, reader));
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Appends a line for all readers. Names in it may hold any bytes: line breaks are escaped.
    pub(crate) fn write(&self, line: &str) {
        let mut whole = printable(line);
        whole.push('\n');
        for reader in self.readers.lock().iter() {
            let mut lines = reader.lines.lock();
            if lines.len() < MAX_LINES {
                lines.push_back(whole.clone());
                reader.more.notify_one();
            }
        }
    }
}

impl LogReader {
    /// Whole lines, as many as fit into `size` bytes. Returns `#` if no line comes for a second.
    pub(crate) fn read(&self, size: usize) -> Bytes {
        let mut lines = self.lines.lock();
        if lines.is_empty() {
            self.more.wait_for(&mut lines, READ_TIMEOUT);
        }
        let mut out = String::new();
        while let Some(line) = lines.front() {
            if !out.is_empty() && out.len() + line.len() > size {
                break;
            }
            out.push_str(line);
            lines.pop_front();
        }
        if out.is_empty() {
            out.push_str("#\n");
        }
        let mut out = out.into_bytes();
        out.truncate(size);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_no_line_of_its_own() {
        let log = AccessLog::default();
        let reader = log.open();
        log.write("lookup (1,a\nb\u{1b}[2Jä) - OK");
        assert_eq!(reader.read(4096), Bytes::from("lookup (1,a\\nb\\u{1b}[2Jä) - OK\n"));
    }
}
