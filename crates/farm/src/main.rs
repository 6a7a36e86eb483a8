//! Measures the cache group: compares the speed of one member with that of bare servers, and runs a
//! rendering farm of many clients.

mod bare;
mod drain;
mod node;
mod render;
mod speed;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Many clients without a cache of their own, cache nodes, and an object store that is far away
    Render(render::Render),
    /// Real mounts beside those of JuiceFS, over the object store of `render`. Needs root
    Beside(render::Beside),
    /// The object store of `render`
    #[command(hide = true)]
    Store,
    /// A cache node of `render`
    #[command(hide = true)]
    CacheNode(render::CacheNode),
    /// Clients of `render`
    #[command(hide = true)]
    Clients(render::Clients),
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
        Order::Render(render) => render.run()?,
        Order::Beside(beside) => beside.run()?,
        Order::Store => render::serve_objects()?,
        Order::CacheNode(node) => node.run()?,
        Order::Clients(clients) => clients.run()?,
        Order::Node(node) => node.run()?,
        Order::Bare { what, dir } => bare::run(what, &dir)?,
    }
    Ok(ExitCode::SUCCESS)
}
