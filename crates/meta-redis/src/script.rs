//! The scripts, by source and digest.
//!
//! They are generic: none knows an operation of the file system.

use std::sync::LazyLock;

/// A Lua script.
pub(crate) struct Script {
    pub(crate) source: &'static str,
    sha: LazyLock<String>,
}

impl Script {
    /// Digest by which the server knows it, 40 hex digits.
    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

macro_rules! script {
    ($name:ident, $file:literal, $what:literal) => {
        #[doc = $what]
        pub(crate) static $name: Script =
            Script { source: include_str!($file), sha: LazyLock::new(|| digest(include_str!($file))) };
    };
}

script!(FOLLOW, "scripts/follow.lua", "Entries with the nodes they name.");
script!(READ, "scripts/read.lua", "Reads that depend on one another.");
script!(COMMIT, "scripts/commit.lua", "One commit.");
script!(SCAN, "scripts/scan.lua", "One page of a scan.");

/// All of them.
pub(crate) static ALL: [&Script; 4] = [&FOLLOW, &READ, &COMMIT, &SCAN];

fn digest(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}
