//! The scripts, by source and digest.
//!
//! They are generic: none knows an operation of the file system.

use std::sync::OnceLock;

/// A Lua script.
pub(crate) struct Script {
    pub(crate) source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    const fn new(source: &'static str) -> Self {
        Self { source, sha: OnceLock::new() }
    }

    /// SHA-1 digest of the script, 40 hex digits.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }
}

/// Entries with the nodes they name.
pub(crate) static FOLLOW: Script = Script::new(include_str!("scripts/follow.lua"));
/// Reads that depend on one another.
pub(crate) static READ: Script = Script::new(include_str!("scripts/read.lua"));
/// One commit.
pub(crate) static COMMIT: Script = Script::new(include_str!("scripts/commit.lua"));
/// The lines of the change log.
pub(crate) static LOG: Script = Script::new(include_str!("scripts/log.lua"));
/// One page of a scan.
pub(crate) static SCAN: Script = Script::new(include_str!("scripts/scan.lua"));

/// All of them.
pub(crate) static ALL: [&Script; 5] = [&FOLLOW, &READ, &COMMIT, &SCAN, &LOG];
