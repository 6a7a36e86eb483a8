//! One member pinned to one core, clients on the others: measures requests per second of CPU time,
//! for the member and for bare servers.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum as _};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs};
use sluice_data::Peers as _;
use sluice_peer::{Group, GroupConfig, Member};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    bare::{REQUEST, What},
    node::{Fixed, LARGE, LARGES, SMALL, SMALLS, block, ring},
};

/// Connections of a client to a member.
const LINKS: usize = 2;
/// Requests for large blocks that are under way at once.
const LARGE_DEPTH: usize = 4;

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
    /// Requests that are under way at once
    #[arg(long, default_value_t = 128)]
    depth: usize,
}

/// What was done in a measurement.
struct Done {
    answers: u64,
    bytes: u64,
    cpu: Duration,
    wall: Duration,
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
        for round in 0..self.rounds {
            for plaintext in [true, false] {
                let node = Self::start(&["node", if plaintext { "--plaintext" } else { "" }], dir.path())?;
                for large in [false, true] {
                    let done = self.members(&runtime, &node, large)?;
                    let name = format!(
                        "member {} {}",
                        if large { "4 MiB" } else { "11.8 KB" },
                        if plaintext { "plaintext" } else { "TLS" }
                    );
                    show(round, &name, &done);
                }
            }
            for what in What::value_variants() {
                let name =
                    what.to_possible_value().map(|name| name.get_name().to_owned()).unwrap_or_default();
                let server = Self::start(&["bare", &name], dir.path())?;
                let done = self.bare(&server, *what)?;
                show(round, &format!("bare {name}"), &done);
            }
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

    fn members(&self, runtime: &Runtime, node: &Serving, large: bool) -> Result<Done> {
        let mut print = None;
        if !node.print.is_empty() {
            let bytes = hex::decode(&node.print)?.try_into();
            let bytes = bytes.map_err(|_| anyhow::anyhow!("the certificate has another length"))?;
            print = Some(bytes);
        }
        let member = Member {
            name: "node".into(),
            address: format!("127.0.0.1:{}", node.port),
            weight: 100,
            fingerprint: print,
            backup: false,
        };
        let (size, count) = if large { (LARGE, LARGES) } else { (SMALL, SMALLS) };
        let depth = if large { LARGE_DEPTH } else { self.depth };
        let until = Duration::from_secs(self.seconds);
        let (started, cpu) = (Instant::now(), node.cpu()?);
        let answers = runtime.block_on(async {
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
                        while started.elapsed() < until {
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
            Ok::<u64, anyhow::Error>(answers)
        })?;
        let bytes = answers * u64::from(size);
        Ok(Done { answers, bytes, cpu: node.cpu()?.saturating_sub(cpu), wall: started.elapsed() })
    }

    /// The same requests to a server that only sends, over as many connections. Each has a thread.
    fn bare(&self, server: &Serving, what: What) -> Result<Done> {
        let depth = if what.is_large() { LARGE_DEPTH } else { self.depth };
        let connections = depth.min(self.clients * LINKS);
        let until = Duration::from_secs(self.seconds);
        let (started, cpu) = (Instant::now(), server.cpu()?);
        let answers = std::thread::scope(|scope| {
            let one = || drain(server, what, depth / connections, until);
            let all: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
            let failed = |_| anyhow::anyhow!("a client of a bare server failed");
            all.into_iter().map(|one| one.join().map_err(failed)?).sum::<Result<u64>>()
        })?;
        let bytes = answers * what.answer() as u64;
        Ok(Done { answers, bytes, cpu: server.cpu()?.saturating_sub(cpu), wall: started.elapsed() })
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

/// Keeps `depth` requests under way on one connection, and throws the answers away. Returns how
/// many there were.
fn drain(server: &Serving, what: What, depth: usize, until: Duration) -> Result<u64> {
    let stream = TcpStream::connect(("127.0.0.1", server.port))?;
    stream.set_nodelay(true)?;
    if what.is_encrypted() {
        let session = ClientConnection::new(Arc::new(trust(server)?), "bare".try_into()?)?;
        drain_stream(StreamOwned::new(session, stream), what, depth, until)
    } else {
        drain_stream(stream, what, depth, until)
    }
}

fn drain_stream(mut stream: impl Read + Write, what: What, depth: usize, until: Duration) -> Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let requests = vec![0; REQUEST * depth];
    let (started, answer) = (Instant::now(), what.answer() as u64);
    let (mut got, mut answered) = (0u64, 0u64);
    stream.write_all(&requests)?;
    while started.elapsed() < until {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the server is gone");
        got += read as u64;
        let now = got / answer;
        if now > answered {
            stream.write_all(&requests[..REQUEST * (now - answered) as usize])?;
            answered = now;
        }
    }
    Ok(answered)
}

/// What a client needs to trust the certificate of a server.
fn trust(server: &Serving) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(hex::decode(&server.print)?.into())?;
    Ok(ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn show(round: usize, name: &str, done: &Done) {
    let (cpu, wall) = (done.cpu.as_secs_f64().max(0.001), done.wall.as_secs_f64());
    println!(
        "{round}: {name:<24} {:>9.0}/s {:>9.0}/CPU s {:>7.0} MiB/CPU s {:>4.0} %",
        done.answers as f64 / wall,
        done.answers as f64 / cpu,
        done.bytes as f64 / f64::from(1 << 20) / cpu,
        100.0 * cpu / wall
    );
}
