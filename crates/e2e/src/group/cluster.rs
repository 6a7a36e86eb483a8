//! The machines: cache nodes, takers that keep nothing, Redis behind a proxy, and a gateway in
//! front of one of the nodes.

use super::{
    files::{FILES, content, file_name},
    node::{Node, Place},
    plan::Plan,
};
use crate::rig::{Engine, Volume, command};
use anyhow::Context;
use rustix::process::Signal;
use sluice_testkit::server::{Network, Proxy};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Cache nodes at the beginning; the last one is behind the gateway.
pub(super) const NODES: usize = 3;
/// Mounts that programs read.
pub(super) const TAKERS: usize = 2;
/// A machine for one more node, and one for one more taker.
pub(super) const LATE_NODE: usize = NODES + TAKERS;
pub(super) const LATE_TAKER: usize = LATE_NODE + 1;

const PORT: u16 = 9600;
const GROUP: &str = "g";
/// Memory for blocks of each mount, MiB.
pub(super) const BUFFER: u64 = 32;

/// All machines.
pub(super) struct Cluster {
    // Dropped in this order: mounts go first.
    pub(super) takers: Vec<Node>,
    pub(super) nodes: Vec<Node>,
    /// In front of the last node: others know its address alone.
    pub(super) gateway: Proxy,
    _engine: Proxy,
    pub(super) volume: Volume,
    pub(super) network: Network,
    pub(super) meta: String,
    /// Where the files' bytes come from.
    pub(super) seed: u64,
    program: PathBuf,
    plaintext: bool,
}

impl Cluster {
    pub(super) fn start(plan: &Plan) -> anyhow::Result<Self> {
        let network = Network::new(LATE_TAKER + 1)?;
        let format = ["--block-size", "256K"];
        let mut volume = Volume::new(&plan.program, Engine::Redis, &plan.within, &format)?;
        let point = volume.mount_plain(&["--cache-size", "0"])?;
        for file in 0..FILES {
            fs::write(point.join(file_name(file)), content(plan.seed, file))?;
        }
        volume.unmount()?;
        let server = volume.meta.split(['/', '?']).nth(2).context("where Redis is")?.parse()?;
        let engine = Proxy::start_at(network.here(), server)?;
        let meta = volume.meta.replace(&server.to_string(), &engine.addr().to_string());
        // It gets its target once the node's machine is known.
        let gateway = Proxy::start_at(network.here(), server)?;
        let mut cluster = Self {
            takers: Vec::new(),
            nodes: Vec::new(),
            gateway,
            _engine: engine,
            volume,
            network,
            meta,
            seed: plan.seed,
            program: plan.program.clone(),
            plaintext: plan.plaintext,
        };
        for number in 0..NODES {
            let node = cluster.new_node(number, number);
            cluster.nodes.push(node);
        }
        let behind = SocketAddr::from((cluster.network.address(NODES - 1), cluster.gateway.addr().port()));
        cluster.gateway.retarget(behind);
        for node in &mut cluster.nodes {
            node.mount()?;
        }
        for number in 0..TAKERS {
            let meta = cluster.meta.clone();
            let mut taker = cluster.new_taker(&format!("taker{number}"), NODES + number, &meta, &[]);
            taker.mount()?;
            cluster.takers.push(taker);
        }
        Ok(cluster)
    }

    fn place(&self, machine: usize, name: &str) -> Place {
        let enter = self.network.enter(machine);
        Place { enter, machine, folder: self.volume.path(""), name: name.to_owned() }
    }

    /// Flags that all mounts have.
    fn flags(&self, more: &[&str]) -> Vec<String> {
        let buffer = BUFFER.to_string();
        let mut flags = vec!["--cache-group", GROUP, "--buffer-size", &buffer];
        flags.extend(["--heartbeat", "2s", "--backup-meta", "0", "--no-bgjob", "--free-space-ratio", "0"]);
        if self.plaintext {
            flags.push("--group-plaintext");
        }
        flags.iter().chain(more).map(|flag| (*flag).to_owned()).collect()
    }

    /// A node that is not mounted yet.
    pub(super) fn new_node(&self, number: usize, machine: usize) -> Node {
        let own = self.network.address(machine);
        let (reached, port) =
            if number == NODES - 1 { (self.network.here(), self.gateway.addr().port()) } else { (own, PORT) };
        let (ip, bound) = (reached.to_string(), port.to_string());
        let flags =
            self.flags(&["--group-ip", &ip, "--group-port", &bound, "--cache-size", "200", "--group-backup"]);
        let place = self.place(machine, &format!("node{number}"));
        let mut node = Node::new(place, &self.program, &self.meta, flags);
        node.address = Some((own, port).into());
        node
    }

    /// A client that keeps nothing, and is not mounted yet.
    pub(super) fn new_taker(&self, name: &str, machine: usize, meta: &str, more: &[&str]) -> Node {
        let flags = self.flags(&[&["--no-sharing", "--cache-size", "0"], more].concat());
        Node::new(self.place(machine, name), &self.program, meta, flags)
    }

    /// Runs the program.
    pub(super) fn command(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command(&self.program, arguments)
    }

    /// Blocks that the takers got from nodes, all together.
    pub(super) fn gets(&self) -> anyhow::Result<f64> {
        self.takers.iter().map(|taker| taker.stat("juicefs_remotecache_gets")).sum()
    }

    pub(super) fn last_words(&self) -> String {
        self.volume.last_words()
    }

    /// Ends whatever a fault left that failed.
    pub(super) fn restore(&mut self) -> anyhow::Result<()> {
        self.nodes.truncate(NODES);
        self.gateway.heal();
        self.gateway.retarget(self.nodes[NODES - 1].address.context("it gives no blocks")?);
        for node in &mut self.nodes {
            self.network.heal(node.machine)?;
            if node.is_mounted() {
                node.signal(Signal::CONT)?;
            } else {
                node.mount()?;
            }
        }
        Ok(())
    }

    /// Unmounts all, and checks the volume.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        for node in self.takers.iter_mut().chain(&mut self.nodes) {
            node.unmount()?;
        }
        self.volume.fsck()
    }
}

/// Calls `work` with each file below a directory.
pub(super) fn each_file(
    dir: &Path,
    work: &mut impl FnMut(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        // The cache is in use meanwhile.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() { each_file(&entry.path(), work)? } else { work(&entry.path())? }
    }
    Ok(())
}
