//! Measures the cache group: compares the speed of one member with that of bare servers.

mod bare;
mod node;
mod speed;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures the cache group")]
struct Arguments {
    #[command(subcommand)]
    command: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Requests per CPU second of one member on one core, warm, and what the machine could do
    Speed(speed::Speed),
    /// A member with a warm cache, for `speed`
    #[command(hide = true)]
    Node(node::Node),
    /// A server that only sends bytes, for `speed`
    #[command(hide = true)]
    Bare {
        what: bare::What,
        /// Where to keep the file that is sent
        dir: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Order::Speed(speed) => speed.run()?,
        Order::Node(node) => node.run()?,
        Order::Bare { what, dir } => bare::run(what, &dir)?,
    }
    Ok(ExitCode::SUCCESS)
}
