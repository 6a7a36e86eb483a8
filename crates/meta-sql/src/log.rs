//! The change log: a table of lines, which the database numbers.

use sluice_meta::engine::{Commit, LogLine, Write};

/// A look at the log, or what trims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The number of the last line.
    Last,
    /// How many lines there are.
    Count,
    /// Lines behind a number, at most so many.
    Lines(u64, usize),
    /// Removes the lines up to a number.
    Trim(u64),
}

impl Ask {
    /// The statement, with parameters.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Last => "SELECT max(id) FROM jfs_change_log",
            Self::Count => "SELECT count(*) FROM jfs_change_log",
            Self::Lines(..) => "SELECT id,entry FROM jfs_change_log WHERE id>$1 ORDER BY id LIMIT $2",
            Self::Trim(_) => "DELETE FROM jfs_change_log WHERE id<=$1",
        }
    }

    /// The values of the parameters.
    pub(crate) fn values(self) -> Vec<i64> {
        match self {
            Self::Last | Self::Count => Vec::new(),
            Self::Lines(after, limit) => vec![after as i64, limit.max(1) as i64],
            Self::Trim(to) => vec![to as i64],
        }
    }

    /// The statement, with the values in it.
    pub(crate) fn plain(self) -> String {
        let fill =
            |text: String, (at, value): (usize, i64)| text.replace(&format!("${at}"), &value.to_string());
        (1..).zip(self.values()).fold(self.text().to_owned(), fill)
    }
}

/// The rows of an answer: numbers, and texts where there are any.
pub(crate) type Rows = Vec<(i64, Vec<u8>)>;

/// The only number of an answer, 0 if there is none.
pub(crate) fn number(rows: &Rows) -> u64 {
    rows.first().map_or(0, |(number, _)| *number as u64)
}

/// The lines of an answer.
pub(crate) fn lines(rows: Rows) -> Vec<LogLine> {
    rows.into_iter().map(|(number, text)| LogLine { number: number as u64, text: text.into() }).collect()
}

/// The lines of a commit.
pub(crate) fn appended(commit: &Commit) -> impl Iterator<Item = &str> {
    commit
        .writes
        .iter()
        .filter_map(|write| if let Write::Log(line) = write { Some(line.as_str()) } else { None })
}

/// Lets an engine that has `ask_log(Ask)` keep a change log.
macro_rules! keep_log {
    ($engine:ty) => {
        impl sluice_meta::engine::ChangeLog for $engine {
            fn last(&self) -> Result<u64, EngineError> {
                self.ask_log($crate::log::Ask::Last).map(|rows| $crate::log::number(&rows))
            }

            fn count(&self) -> Result<u64, EngineError> {
                self.ask_log($crate::log::Ask::Count).map(|rows| $crate::log::number(&rows))
            }

            fn lines(
                &self,
                after: u64,
                limit: usize,
            ) -> Result<Vec<sluice_meta::engine::LogLine>, EngineError> {
                self.ask_log($crate::log::Ask::Lines(after, limit)).map($crate::log::lines)
            }

            fn trim(&self, to: u64) -> Result<(), EngineError> {
                self.ask_log($crate::log::Ask::Trim(to)).map(drop)
            }
        }
    };
}

pub(crate) use keep_log;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_in() {
        let text = Ask::Lines(7, 12).plain();
        assert_eq!(text, "SELECT id,entry FROM jfs_change_log WHERE id>7 ORDER BY id LIMIT 12");
    }
}
