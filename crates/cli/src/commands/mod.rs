//! The commands, one file each.

mod bench;
mod bench_meta;
mod clone;
mod compact;
mod config;
mod destroy;
mod dump;
mod format;
mod fsck;
mod gc;
mod info;
mod load;
mod mdtest;
mod mount;
mod restore;
mod rmr;
mod status;
mod summary;
mod umount;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

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
    Compact(compact::Compact),
    Fsck(fsck::Fsck),
    Gc(gc::Gc),
    Restore(restore::Restore),
    Destroy(destroy::Destroy),
    Dump(dump::Dump),
    Load(load::Load),
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
        Command::Compact(command) => command.run(),
        Command::Fsck(command) => command.run(),
        Command::Gc(command) => command.run(),
        Command::Restore(command) => command.run(),
        Command::Destroy(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::BenchMeta(command) => command.run(),
        Command::Mdtest(command) => command.run(),
        Command::Version(command) => command.run(),
    }
}
