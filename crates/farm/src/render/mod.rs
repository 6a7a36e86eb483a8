//! A rendering farm on one machine: clients of a volume without FUSE, cache nodes that serve them,
//! an object store that is far away, and a metadata engine.
//!
//! Each client is a whole client of the volume, with its own session and metadata cache, and has no
//! cache of blocks. Clients of one process share threads and connections. What must stay true: the
//! processes exchange information only through the volume.

mod beside;
mod cache_node;
mod clients;
mod crowd;
mod data_set;
mod farm;
mod fill;
mod mount;
mod plot;
mod process;
mod report;
mod store;
mod volume;
mod work;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

pub(crate) use self::{
    beside::Beside, cache_node::CacheNode, clients::Clients, store::serve as serve_objects,
};
use self::{
    cache_node::Served,
    clients::{Ready, Usage},
    crowd::Outcome,
    data_set::DataSet,
    farm::{Farm, FarmArgs},
    process::Process,
    report::Row,
    work::Work,
};

/// Simulates a rendering farm.
#[derive(Args)]
pub(crate) struct Render {
    /// Numbers of clients, one run for each
    #[arg(long, value_delimiter = ',', default_values_t = [100, 300, 1000, 3000])]
    clients: Vec<usize>,
    /// Cache nodes
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Threads on which all clients work
    #[arg(long, default_value_t = 96)]
    threads: usize,
    /// Most clients of one process
    #[arg(long, default_value_t = 1000)]
    per_process: usize,
    /// Seconds for which open clients do nothing before they work
    #[arg(long, default_value_t = 24)]
    idle: u64,
    /// Seconds between two heartbeats of a client
    #[arg(long, default_value_t = 12)]
    heartbeat: u64,
    /// Milliseconds that a client waits for a cache node at least before it reads the object store
    #[arg(long, default_value_t = 20)]
    min_timeout: u64,
    /// One client reads the whole data set before each run, so that the caches have it
    #[arg(long)]
    warm: bool,
    /// No encryption between clients and cache nodes
    #[arg(long)]
    plaintext: bool,
    /// Print JSON, a line for each run
    #[arg(long)]
    json: bool,
    /// Write a plot of the completion time for each byte here (SVG)
    #[arg(long)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    farm: FarmArgs,
    #[command(flatten)]
    work: Work,
}

impl Render {
    pub(crate) fn run(&self) -> Result<()> {
        let set = DataSet::new(self.work.scale);
        eprintln!("{} files of {} MB in all", set.files(), set.bytes() / 1_000_000);
        let mut farm = Farm::start(&self.farm, &set)?;
        let mut rows = Vec::new();
        for clients in &self.clients {
            let row = self.row(&mut farm, *clients, &set)?;
            if self.json {
                process::say(&row)?;
            } else {
                eprintln!("{clients} clients took {:.1} s", row.longest());
            }
            rows.push(row);
        }
        if !self.json {
            print!("{}", report::table(&rows));
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::svg(&rows))?;
        }
        let failed: usize = rows.iter().map(|row| row.outcome.failed).sum();
        ensure!(failed == 0, "{failed} clients failed");
        Ok(())
    }

    /// One run with so many clients, and cache nodes that have nothing yet.
    fn row(&self, farm: &mut Farm, clients: usize, set: &DataSet) -> Result<Row> {
        let mut nodes =
            (0..self.nodes).map(|_| farm.cache_node(self.plaintext)).collect::<Result<Vec<_>>>()?;
        if self.warm {
            let work = Work { whole: true, ..self.work.clone() };
            let mut process = self.process(farm, (0, 1, 1), 1, &work)?;
            let _: Ready = process.hear()?;
            let warmed: Outcome = process.ask("go")?;
            ensure!(warmed.failed == 0, "the caches cannot be warmed: {:?}", warmed.messages);
            let _: Usage = process.hear()?;
            process.end()?;
        }
        let count = clients.div_ceil(self.per_process);
        let mut processes = Vec::new();
        for part in 0..count {
            let (first, end) = (part * clients / count, (part + 1) * clients / count);
            let threads = self.threads.div_ceil(count);
            processes.push(self.process(farm, (first, end - first, clients), threads, &self.work)?);
        }
        let mut row = Row { clients, files: self.work.files(clients, set), ..Row::default() };
        row.set_bytes = set.bytes();
        for process in &mut processes {
            row.ready.push(process.hear()?);
        }
        let served = |nodes: &mut Vec<Process>| -> Result<Vec<Served>> {
            nodes.iter_mut().map(|node| node.ask("served")).collect()
        };
        let cpu = |nodes: &[Process]| -> Result<f64> {
            nodes.iter().map(|node| Ok(node.cpu()?.as_secs_f64())).sum()
        };
        let before = (farm.counts()?, served(&mut nodes)?, cpu(&nodes)?);
        processes.iter_mut().try_for_each(|process| process.tell("go"))?;
        for process in &mut processes {
            row.outcome.merge(process.hear()?);
            row.usage.push(process.hear()?);
        }
        let after = (farm.counts()?, served(&mut nodes)?, cpu(&nodes)?);
        row.store_bytes = after.0.get_bytes - before.0.get_bytes;
        row.store_gets = after.0.gets - before.0.gets;
        row.node_cpu = after.2 - before.2;
        for (after, before) in after.1.iter().zip(&before.1) {
            row.served += after.requests - before.requests;
            row.served_bytes += after.bytes - before.bytes;
            row.node_memory = row.node_memory.max(after.memory);
        }
        row.outcome.messages.iter().for_each(|message| eprintln!("a client failed: {message}"));
        processes.into_iter().chain(nodes).try_for_each(Process::end)?;
        farm.forget_nodes()?;
        Ok(row)
    }

    /// A process with so many clients from a first one on, of so many in all.
    fn process(
        &self,
        farm: &Farm,
        (first, count, all): (usize, usize, usize),
        threads: usize,
        work: &Work,
    ) -> Result<Process> {
        let idle = if self.warm && all == 1 { 0 } else { self.idle };
        let mut args: Vec<String> = vec!["clients".into(), farm.url.clone()];
        for (name, value) in [
            ("--first", first),
            ("--count", count),
            ("--all", all),
            ("--threads", threads),
            ("--idle", idle as usize),
            ("--min-timeout", self.min_timeout as usize),
            ("--heartbeat", self.heartbeat as usize),
        ] {
            args.extend([name.to_owned(), value.to_string()]);
        }
        args.extend(work.arguments());
        Process::start(&args)
    }
}
