//! The definition of the whole command line, for commands that describe it.

/// Builds the definition.
pub(crate) type Program = fn() -> clap::Command;
