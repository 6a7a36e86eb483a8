//! The commands, one file each.

mod format;
mod mdtest;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use sluice_types::Time;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Format(format::Format),
    Mdtest(mdtest::Mdtest),
    Version(version::Version),
}

/// Does it.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Format(command) => command.run(),
        Command::Mdtest(command) => command.run(),
        Command::Version(command) => command.run(),
    }
}

/// A time as RFC 3339 in UTC.
pub(crate) fn rfc3339(time: Time) -> String {
    let hour = sluice_meta::ops::removal::hour_name(time);
    let (date, hour) = hour.split_at(10);
    let rest = time.sec.rem_euclid(3600);
    format!("{date}T{}:{:02}:{:02}Z", &hour[1..], rest / 60, rest % 60)
}
