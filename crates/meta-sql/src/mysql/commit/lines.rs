//! Lines of the change log as statements.

use sluice_meta::engine::Commit;

use super::super::{options::Options, tables::push_text};
use crate::log::appended;

/// Bytes that the column of a line holds. JuiceFS made it.
const LONGEST: usize = 65_535;
/// Bytes after which a statement takes no more lines.
const LONG: usize = 1 << 18;

/// The statements that append the lines of a commit.
pub(super) fn append(options: &Options, commit: &Commit) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    for line in appended(commit) {
        if line.len() > LONGEST {
            let about: String = line.chars().take(80).collect();
            tracing::warn!(about, "a line of the change log is longer than MySQL takes; it is left out");
            continue;
        }
        let statement = match statements.last_mut() {
            Some(last) if last.len() < LONG => {
                last.push_str("),(");
                last
            }
            _ => {
                let table = options.naming.table("jfs_change_log");
                statements.push(format!("INSERT INTO {table}(entry) VALUES ("));
                let last = statements.len() - 1;
                &mut statements[last]
            }
        };
        push_text(statement, line.as_bytes());
    }
    for statement in &mut statements {
        statement.push(')');
    }
    statements
}
