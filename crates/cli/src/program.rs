//! The command line as a whole, for commands that tell of it.

/// Defines it.
pub(crate) type Program = fn() -> clap::Command;
