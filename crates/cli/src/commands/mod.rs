//! The commands, one file each.

mod backup;
mod bench;
mod bench_meta;
mod changelog;
mod clone;
mod compact;
mod completion;
mod config;
mod console;
mod debug;
mod destroy;
mod dump;
mod format;
mod fsck;
mod gc;
mod hadoop;
mod info;
mod load;
mod man;
mod mdtest;
mod mount;
mod objbench;
mod profile;
mod quota;
mod restore;
mod rmr;
mod stats;
mod status;
mod summary;
mod umount;
mod version;
mod warmup;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::program::Program;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Format(format::Format),
    Config(Box<config::Config>),
    Status(status::Status),
    Console(console::ConsoleCommand),
    Changelog(changelog::Changelog),
    Mount(Box<mount::Mount>),
    Umount(umount::Umount),
    Stats(stats::Stats),
    Profile(profile::Profile),
    Debug(debug::Debug),
    Info(info::Info),
    Summary(summary::Summary),
    Quota(quota::QuotaCommand),
    Rmr(rmr::Rmr),
    Clone(clone::Clone),
    Compact(compact::Compact),
    Warmup(warmup::Warmup),
    Fsck(fsck::Fsck),
    Gc(gc::Gc),
    Restore(restore::Restore),
    Destroy(destroy::Destroy),
    Dump(dump::Dump),
    Load(load::Load),
    Backup(backup::Backup),
    Bench(bench::Bench),
    BenchMeta(bench_meta::BenchMeta),
    Objbench(objbench::Objbench),
    Mdtest(mdtest::Mdtest),
    Completion(completion::Completion),
    Man(man::Man),
    Version(version::Version),
}

/// Does it.
pub(crate) fn run(command: Command, program: Program) -> Result<ExitCode> {
    match command {
        Command::Format(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Console(command) => command.run(),
        Command::Changelog(command) => command.run(),
        Command::Mount(command) => command.run(program),
        Command::Umount(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Profile(command) => command.run(),
        Command::Debug(command) => command.run(),
        Command::Info(command) => command.run(),
        Command::Summary(command) => command.run(),
        Command::Quota(command) => command.run(),
        Command::Rmr(command) => command.run(),
        Command::Clone(command) => command.run(),
        Command::Compact(command) => command.run(),
        Command::Warmup(command) => command.run(),
        Command::Fsck(command) => command.run(),
        Command::Gc(command) => command.run(),
        Command::Restore(command) => command.run(),
        Command::Destroy(command) => command.run(),
        Command::Dump(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Backup(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::BenchMeta(command) => command.run(),
        Command::Objbench(command) => command.run(),
        Command::Mdtest(command) => command.run(),
        Command::Completion(command) => command.run(program),
        Command::Man(command) => command.run(program),
        Command::Version(command) => command.run(),
    }
}
