//! The commands, one file each.

mod bench;
mod bench_meta;
mod clone;
mod config;
mod format;
mod fsck;
mod info;
mod mdtest;
mod mount;
mod rmr;
mod status;
mod summary;
mod umount;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use sluice_types::Time;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Format(format::Format),
    Config(Box<config::Config>),
    Status(status::Status),
    Mount(Box<mount::Mount>),
    Umount(umount::Umount),
    Info(info::Info),
    Summary(summary::Summary),
    Rmr(rmr::Rmr),
    Clone(clone::Clone),
    Fsck(fsck::Fsck),
    Bench(bench::Bench),
    BenchMeta(bench_meta::BenchMeta),
    Mdtest(mdtest::Mdtest),
    Version(version::Version),
}

/// Does it.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Format(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Mount(command) => command.run(),
        Command::Umount(command) => command.run(),
        Command::Info(command) => command.run(),
        Command::Summary(command) => command.run(),
        Command::Rmr(command) => command.run(),
        Command::Clone(command) => command.run(),
        Command::Fsck(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::BenchMeta(command) => command.run(),
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
