//! The command `sluice`: arguments become a command, one file each under `commands/`.
//!
//! This is the only crate that names engines and reads the environment, and the only one that prints.

mod args;
mod commands;
mod engines;
mod progress;
mod volume;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    cli.log.init();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluice: {error:#}");
            ExitCode::FAILURE
        }
    }
}
