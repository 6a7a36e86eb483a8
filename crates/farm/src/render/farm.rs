//! The servers of a farm: a metadata engine, an object store, and the volume on them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use sluice_testkit::server::{Postgres, PostgresOptions, Redis, redis};
use tempfile::TempDir;

use super::{cache_node::Served, data_set::DataSet, fill::fill, process::Process, store::Counts, volume};

/// Connections that PostgreSQL accepts.
const CONNECTIONS: &str = "max_connections=400";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    Redis,
    Postgres,
}

/// What the farm is built of.
#[derive(Args, Clone, Debug)]
pub(crate) struct FarmArgs {
    /// Metadata engine
    #[arg(long, default_value = "redis")]
    pub(crate) engine: EngineKind,
    /// Milliseconds that the object store takes for each request
    #[arg(long, default_value_t = 20)]
    pub(crate) delay: u64,
    /// Directory for caches and mounts
    #[arg(long, default_value = "/tmp")]
    pub(crate) within: PathBuf,
}

/// A running farm with its data set. All of it ends when this is dropped.
pub(crate) struct Farm {
    pub(crate) url: String,
    store: Process,
    _engine: Server,
    dir: TempDir,
    nodes: usize,
}

enum Server {
    Redis { _server: Redis },
    Postgres { _server: Postgres },
}

impl Farm {
    /// Starts the servers and writes the data set. From then on, each request to the object store
    /// takes its time.
    pub(crate) fn start(args: &FarmArgs, set: &DataSet) -> Result<Self> {
        let dir = TempDir::with_prefix_in("farm-", &args.within)?;
        let (engine, url) = match args.engine {
            EngineKind::Redis => {
                let server = redis()?;
                let url = server.url(1);
                (Server::Redis { _server: server }, url)
            }
            EngineKind::Postgres => {
                let options =
                    PostgresOptions { settings: vec![CONNECTIONS.into()], ..PostgresOptions::default() };
                let server = Postgres::start(&options)?;
                let url = server.url(&server.database()?);
                (Server::Postgres { _server: server }, url)
            }
        };
        let mut store = Process::start(&["store".into()])?;
        let port: u16 = store.hear()?;
        volume::format(volume::engine(&url)?.as_ref(), port)?;
        fill(&url, set).context("the data set cannot be written")?;
        let _: Counts = store.ask(&format!("delay {}", args.delay))?;
        Ok(Self { url, store, _engine: engine, dir, nodes: 0 })
    }

    /// What the object store did so far.
    pub(crate) fn counts(&mut self) -> Result<Counts> {
        self.store.ask("counts")
    }

    /// A directory for caches and mounts.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A cache node with an empty cache.
    pub(crate) fn cache_node(&mut self, plaintext: bool) -> Result<Process> {
        self.nodes += 1;
        let dir = self.dir.path().join(format!("node{}", self.nodes));
        std::fs::create_dir(&dir)?;
        let mut args = vec!["cache-node".into(), self.url.clone(), dir.display().to_string()];
        args.extend(plaintext.then(|| "--plaintext".to_owned()));
        let mut node = Process::start(&args)?;
        let _: Served = node.hear()?;
        Ok(node)
    }

    /// Removes the caches of nodes that have ended.
    pub(crate) fn forget_nodes(&self) -> Result<()> {
        for node in 1..=self.nodes {
            let dir = self.dir.path().join(format!("node{node}"));
            if dir.exists() {
                std::fs::remove_dir_all(dir)?;
            }
        }
        Ok(())
    }
}
