//! The lines of the change log that operations state.

use super::{Batch, View};
use crate::{change_log::Line, engine::Write};

impl View<'_> {
    /// States a line of the change log, if the volume has one.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> Line) {
        if self.batch.known.logs() {
            self.outcome.lines.push(line());
        }
    }
}

impl Batch<'_> {
    /// What its operations write, and after that their lines in their order.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.overlay).into_writes();
        writes.extend(self.lines.iter().map(|line| self.known.write_line(line, self.now)));
        writes
    }
}
