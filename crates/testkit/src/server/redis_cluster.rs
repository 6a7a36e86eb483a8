//! A private Redis Cluster.
//!
//! What must stay true: when it has started, every node knows who has which slots, and every
//! replica has caught up.

use std::io;

use super::{Redis, RedisOptions, port::free_port, redis::TOGETHER};
use crate::wait::until;

/// All slots.
const SLOTS: usize = 16_384;

/// Masters with an equal share of the slots each, then their replicas. Dropping it kills all of
/// them.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes.
    pub nodes: Vec<Redis>,
    masters: usize,
}

impl RedisCluster {
    /// Starts three masters, and a replica of each if wanted; `options` are those of all nodes.
    ///
    /// # Errors
    /// If `redis-server` is not installed or does not start, or the nodes do not find each other.
    pub fn start(replicas: bool, options: &RedisOptions) -> io::Result<Self> {
        let masters = 3;
        let count = if replicas { 2 * masters } else { masters };
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            // Usually it is 10,000 above the port, which not every free port has room for.
            let bus = free_port()?;
            let mut config = options.config.clone();
            config.extend([
                "cluster-enabled yes".into(),
                format!("cluster-port {bus}"),
                "cluster-node-timeout 1000".into(),
                "cluster-replica-validity-factor 0".into(),
                "repl-diskless-sync-delay 0".into(),
            ]);
            nodes.push(Redis::start(RedisOptions { config, ..options.clone() })?);
            buses.push(bus);
        }
        let cluster = Self { nodes, masters };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let bounds = |at: usize| at * SLOTS / masters;
            if at < masters {
                let (first, last) = (bounds(at).to_string(), (bounds(at + 1) - 1).to_string());
                cluster.order(at, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
                cluster.order(at, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            }
            let (port, bus) = (node.addr().port().to_string(), buses[at].to_string());
            cluster.order(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        cluster.wait_until("known", |cluster, at| {
            cluster.cluster_info(at, "cluster_known_nodes") == Some(count.to_string())
        })?;
        for at in masters..count {
            let master = cluster.id(at - masters)?;
            // Not before it has heard of that one.
            until("a replica to know its master", TOGETHER, || {
                cluster.order(at, &["CLUSTER", "REPLICATE", &master]).is_ok()
            })?;
        }
        cluster.wait_until("complete", |cluster, at| {
            let caught_up =
                at < masters || cluster.nodes[at].info("master_link_status").as_deref() == Some("up");
            // Each line is a node: without its slots it does not count yet.
            let known = cluster.order(at, &["CLUSTER", "NODES"]).is_ok_and(|nodes| {
                nodes.lines().filter(|line| line.contains("slave")).count() == count - masters
            });
            caught_up && known && cluster.cluster_info(at, "cluster_state").as_deref() == Some("ok")
        })?;
        Ok(cluster)
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Self, usize) -> bool) -> io::Result<()> {
        until(&format!("the cluster to be {what}"), TOGETHER, || {
            (0..self.nodes.len()).all(|at| holds(self, at))
        })
    }

    /// URL of the volume with the number `db`.
    pub fn url(&self, db: u32) -> String {
        let nodes: Vec<String> =
            self.nodes[..self.masters].iter().map(|node| node.addr().to_string()).collect();
        let scheme = if self.nodes[0].authority().exists() { "rediss" } else { "redis" };
        format!("{scheme}://{}/{db}", nodes.join(","))
    }

    /// As [`Redis::outlive_tests`].
    ///
    /// # Errors
    /// If a node is gone.
    pub fn outlive_tests(&mut self) -> io::Result<()> {
        self.nodes.iter_mut().try_for_each(Redis::outlive_tests)
    }

    /// What the node at `at` answers, if it is no error.
    ///
    /// # Errors
    /// What it says, or that it does not answer.
    pub fn order(&self, at: usize, words: &[&str]) -> io::Result<String> {
        let answer = String::from_utf8_lossy(&self.nodes[at].command(words)?).into_owned();
        if answer.starts_with('-') { Err(io::Error::other(answer)) } else { Ok(answer) }
    }

    fn cluster_info(&self, at: usize, name: &str) -> Option<String> {
        let info = self.order(at, &["CLUSTER", "INFO"]).ok()?;
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(of, _)| *of == name).map(|(_, value)| value.trim().to_owned())
    }

    fn id(&self, at: usize) -> io::Result<String> {
        let answer = self.order(at, &["CLUSTER", "MYID"])?;
        Ok(answer.lines().nth(1).unwrap_or_default().to_owned())
    }

    /// The slot of the volume with the number `db`.
    ///
    /// # Errors
    /// If no node answers.
    pub fn slot(&self, db: u32) -> io::Result<String> {
        let mut slot = Err(io::ErrorKind::NotConnected.into());
        for at in 0..self.nodes.len() {
            slot = self.order(at, &["CLUSTER", "KEYSLOT", &format!("{{{db}}}")]);
            if slot.is_ok() {
                break;
            }
        }
        slot.map(|slot| slot.trim_start_matches(':').trim().to_owned())
    }

    /// Place of the node that has the volume with the number `db` and takes its writes.
    ///
    /// # Errors
    /// If there is none in time.
    pub fn owner(&self, db: u32) -> io::Result<usize> {
        let key = format!("{{{db}}}nothing");
        let mut owner = None;
        until("a node with the slot", TOGETHER, || {
            owner = (0..self.nodes.len()).find(|at| {
                self.order(*at, &["EXISTS", &key]).is_ok()
                    && self.nodes[*at].info("role").as_deref() == Some("master")
            });
            owner.is_some()
        })?;
        Ok(owner.unwrap_or_default())
    }

    /// Begins to move the volume's slot: from then on the first node sends on whoever asks for what
    /// it has not.
    ///
    /// # Errors
    /// If a node refuses.
    pub fn begin_move(&self, db: u32, from: usize, to: usize) -> io::Result<()> {
        let (slot, source, target) = (self.slot(db)?, self.id(from)?, self.id(to)?);
        self.order(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])?;
        self.order(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).map(drop)
    }

    /// Moves up to `most` keys of the slot; how many.
    ///
    /// # Errors
    /// If a node refuses.
    pub fn move_keys(&self, db: u32, from: usize, to: usize, most: usize) -> io::Result<usize> {
        let keys = self.order(from, &["CLUSTER", "GETKEYSINSLOT", &self.slot(db)?, &most.to_string()])?;
        let keys: Vec<&str> = keys.lines().skip(1).filter(|line| line.starts_with('{')).collect();
        let port = self.nodes[to].addr().port().to_string();
        for key in &keys {
            self.order(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "10000"])?;
        }
        Ok(keys.len())
    }

    /// Ends the move: the slot is the second node's.
    ///
    /// # Errors
    /// If a node refuses.
    pub fn end_move(&self, db: u32, to: usize) -> io::Result<()> {
        let (slot, target) = (self.slot(db)?, self.id(to)?);
        // The new owner first: until it knows, it would send everybody back.
        for at in std::iter::once(to).chain((0..self.masters).filter(|at| *at != to)) {
            self.order(at, &["CLUSTER", "SETSLOT", &slot, "NODE", &target])?;
        }
        Ok(())
    }
}
