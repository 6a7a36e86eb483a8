//! What is to break, and where.

use std::path::PathBuf;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program that formats and mounts.
    pub program: PathBuf,
    /// A folder to work in.
    pub within: PathBuf,
    /// Faults whose names contain one of these; all if it is empty.
    pub only: Vec<String>,
    /// Whether members do not encrypt.
    pub plaintext: bool,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Plan {
    pub(super) fn has(&self, fault: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| fault.contains(word.as_str()))
    }
}
