//! One member pinned to one core, clients on the others: measures requests per second of CPU time,
//! for the member and for bare servers.
//!
//! What must stay true: the member and the bare servers have the same clients, which ask for the
//! same blocks over as many connections.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::thread::{CpuSet, sched_setaffinity};
use sluice_data::Peers as _;
use sluice_peer::{Group, GroupConfig, Member};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    bare::What,
    drain::Drain,
    node::{Fixed, LARGE, LARGES, SMALL, SMALLS, block, ring},
};

/// Connections of a client to a member.
const LINKS: usize = 2;
/// Requests for large blocks that are under way at once.
const LARGE_DEPTH: usize = 4;
/// How long a member is asked for blocks before it is measured. It has all of them in memory then,
/// as the bare servers have.
const WARMING: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct Speed {
    /// Directory for the cache that is served
    #[arg(long, default_value = "/tmp")]
    within: PathBuf,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Clients, each with two connections
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// The flag of the member's mount: a fifth of it keeps small blocks in memory
    #[arg(long, value_name = "MIB", default_value_t = 300)]
    buffer_size: u64,
    /// Measure these alone; may be repeated
    #[arg(long)]
    only: Vec<What>,
    /// Measure with these clients alone; may be repeated
    #[arg(long = "with")]
    clients_of: Vec<Clients>,
    /// Requests that are under way at once
    #[arg(long, default_value_t = 128)]
    depth: usize,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clients {
    /// Clients of a cache group, as mounts have them: they compare checksums and hand bytes on.
    Group,
    /// Clients that throw the answers away, so that many requests are under way.
    Drain,
}

/// What was done in a measurement.
struct Done {
    answers: u64,
    bytes: u64,
    cpu: Duration,
    wall: Duration,
}

impl Done {
    /// Prints what was done. Returns the answers per second of CPU time.
    fn show(&self, round: usize, server: &str, what: What, clients: Clients) -> f64 {
        let (cpu, wall) = (self.cpu.as_secs_f64().max(0.001), self.wall.as_secs_f64());
        println!(
            "{round}: {server:<6} {:<16} {:>9.0}/s {:>9.0}/CPU s {:>7.0} MiB/CPU s {:>4.0} %",
            format!("{}, {clients:?}", what.name()),
            self.answers as f64 / wall,
            self.answers as f64 / cpu,
            self.bytes as f64 / f64::from(1 << 20) / cpu,
            100.0 * cpu / wall
        );
        self.answers as f64 / cpu
    }
}

impl Speed {
    pub(crate) fn run(&self) -> Result<()> {
        let dir = tempfile::tempdir_in(&self.within)?;
        // The member has the first core for itself.
        let cores = std::thread::available_parallelism()?.get();
        let mut others = CpuSet::new();
        (1..cores.max(2)).for_each(|core| others.set(core % cores));
        sched_setaffinity(None, &others)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        println!("what, answers/s, answers per CPU second, MiB per CPU second, core busy");
        let whats = if self.only.is_empty() { What::value_variants() } else { &self.only };
        let clients = if self.clients_of.is_empty() { Clients::value_variants() } else { &self.clients_of };
        let all: Vec<(What, Clients)> =
            whats.iter().flat_map(|what| clients.iter().map(|clients| (*what, *clients))).collect();
        let period = Duration::from_secs(self.seconds);
        let mut rates: Vec<[Vec<f64>; 2]> = vec![<[Vec<f64>; 2]>::default(); all.len()];
        for round in 0..self.rounds {
            for plaintext in [true, false] {
                if whats.iter().all(|what| what.is_encrypted() == plaintext) {
                    continue;
                }
                let buffer_size = format!("--buffer-size={}", self.buffer_size);
                let plaintext_flag = if plaintext { "--plaintext" } else { "" };
                let node = Self::start(&["node", &buffer_size, plaintext_flag], dir.path())?;
                for large in [false, true] {
                    self.measure(&runtime, &node, large, Clients::Drain, WARMING)?;
                }
                for ((what, clients), rates) in all.iter().zip(&mut rates) {
                    if what.is_encrypted() != plaintext {
                        let done = self.measure(&runtime, &node, what.is_large(), *clients, period)?;
                        rates[0].push(done.show(round, "member", *what, *clients));
                    }
                }
            }
            for ((what, clients), rates) in all.iter().zip(&mut rates) {
                let server = Self::start(&["bare", &what.name()], dir.path())?;
                let done = self.measure(&runtime, &server, what.is_large(), *clients, period)?;
                rates[1].push(done.show(round, "bare", *what, *clients));
            }
        }
        println!("what, answers per CPU second of the member and of the bare server (medians), share");
        for ((what, clients), rates) in all.iter().zip(&mut rates) {
            let [member, bare] = rates.each_mut().map(|rates| {
                rates.sort_by(f64::total_cmp);
                rates.get(rates.len() / 2).copied().unwrap_or_default()
            });
            let name = format!("{}, {clients:?}", what.name());
            println!("{name:<16} {member:>9.0} {bare:>9.0} {:>4.0} %", 100.0 * member / bare);
        }
        Ok(())
    }

    /// A server process on the first core.
    fn start(args: &[&str], dir: &Path) -> Result<Serving> {
        let mut command = Command::new("taskset");
        command
            .args(["-c", "0"])
            .arg(std::env::current_exe()?)
            .args(args.iter().filter(|arg| !arg.is_empty()));
        let mut child = command.arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let (port, print) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        Ok(Serving { port: port.parse().context("its port")?, print: print.to_owned(), child })
    }

    /// Requests to one server, over as many connections as clients make.
    fn measure(
        &self,
        runtime: &Runtime,
        server: &Serving,
        large: bool,
        clients: Clients,
        period: Duration,
    ) -> Result<Done> {
        let mut print = None;
        if !server.print.is_empty() {
            let bytes = hex::decode(&server.print)?.try_into();
            let bytes = bytes.map_err(|_| anyhow::anyhow!("the certificate has another length"))?;
            print = Some(bytes);
        }
        let member = Member {
            name: "node".into(),
            address: format!("127.0.0.1:{}", server.port),
            weight: 100,
            fingerprint: print,
            backup: false,
            ..Member::default()
        };
        let (started, cpu) = (Instant::now(), server.cpu()?);
        let answers = match clients {
            Clients::Group => self.ask_as_group(runtime, &member, large, period)?,
            Clients::Drain => self.drain(&member, large, period)?,
        };
        let bytes = answers * u64::from(if large { LARGE } else { SMALL });
        Ok(Done { answers, bytes, cpu: server.cpu()?.saturating_sub(cpu), wall: started.elapsed() })
    }

    /// Answers to clients of a group.
    fn ask_as_group(&self, runtime: &Runtime, member: &Member, large: bool, period: Duration) -> Result<u64> {
        let (size, count) = if large { (LARGE, LARGES) } else { (SMALL, SMALLS) };
        let depth = if large { LARGE_DEPTH } else { self.depth };
        let started = Instant::now();
        runtime.block_on(async {
            let mut work = JoinSet::new();
            for client in 0..self.clients {
                let directory = Arc::new(Fixed(vec![member.clone()]));
                let handle = runtime.handle().clone();
                let group = Group::new(GroupConfig::default(), ring(), directory, handle);
                group.refresh().map_err(anyhow::Error::msg)?;
                for task in 0..depth.div_ceil(self.clients) {
                    let group = Arc::clone(&group);
                    work.spawn(async move {
                        let (mut done, mut at) = (0, (client * 977 + task * 131) as u64);
                        while started.elapsed() < period {
                            at = (at + 7919) % count;
                            let key = block(at, size);
                            ensure!(group.fetch(key, 0..size).await.is_some(), "a block was not given");
                            done += 1;
                        }
                        Ok(done)
                    });
                }
            }
            let mut answers = 0;
            while let Some(done) = work.join_next().await {
                answers += done??;
            }
            Ok(answers)
        })
    }

    /// Answers to clients that throw them away.
    fn drain(&self, member: &Member, large: bool, period: Duration) -> Result<u64> {
        let (size, count) = if large { (LARGE, LARGES) } else { (SMALL, SMALLS) };
        let depth = if large { LARGE_DEPTH } else { self.depth };
        let connections = depth.min(self.clients * LINKS);
        let drain = |number: usize| Drain {
            address: member.address.clone(),
            fingerprint: member.fingerprint,
            size,
            count,
            depth: depth / connections,
            first: number as u64 * 977,
            period,
        };
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..connections).map(drain).map(|drain| scope.spawn(move || drain.run())).collect();
            let failed = |_| anyhow::anyhow!("a client failed");
            all.into_iter().map(|one| one.join().map_err(failed)?).sum::<Result<u64>>()
        })
    }
}

/// A server process.
struct Serving {
    port: u16,
    print: String,
    child: Child,
}

impl Serving {
    /// The processor time that it took.
    fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name may hold anything but ends at the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 1000 / rustix::param::clock_ticks_per_second()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
