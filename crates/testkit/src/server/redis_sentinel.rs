//! A private Redis with a replica and three sentinels that watch over them.
//!
//! What must stay true: when it has started, all sentinels know each other and the replica, so that
//! the loss of the master leads to a failover.

use std::io;

use super::{Redis, RedisOptions, redis::TOGETHER};
use crate::wait::until;

/// The name of the master's group.
const GROUP: &str = "group";

/// A master, a replica and three sentinels. Dropping it kills all of them.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The servers, of which one is the master.
    pub servers: Vec<Redis>,
    /// The sentinels.
    pub sentinels: Vec<Redis>,
}

impl RedisSentinel {
    /// Starts all of them; `options` are those of the two servers, and of the sentinels as far as
    /// encryption goes.
    ///
    /// # Errors
    /// If `redis-server` is not installed or does not start, or the servers do not find each other.
    pub fn start(options: &RedisOptions) -> io::Result<Self> {
        let server = |more: &[String]| {
            let fast = ["repl-diskless-sync-delay 0".into(), "repl-ping-replica-period 1".into()];
            let config = options.config.iter().chain(&fast).chain(more).cloned().collect();
            Redis::start(RedisOptions { config, ..options.clone() })
        };
        let master = server(&[])?;
        let port = master.addr().port();
        let replica = server(&[format!("replicaof 127.0.0.1 {port}")])?;
        until("the first copy to the replica", TOGETHER, || {
            replica.info("master_link_status").as_deref() == Some("up")
        })?;
        let watch = || {
            let config = [
                format!("sentinel monitor {GROUP} 127.0.0.1 {port} 2"),
                // They connect to a new master within a second, and would else take it for dead
                // meanwhile.
                format!("sentinel down-after-milliseconds {GROUP} 2000"),
                format!("sentinel failover-timeout {GROUP} 5000"),
            ];
            let options = RedisOptions { config: config.into(), tls: options.tls, ..RedisOptions::default() };
            Redis::start_as(options, &["--sentinel"])
        };
        let sentinels = vec![watch()?, watch()?, watch()?];
        let group = Self { servers: vec![master, replica], sentinels };
        until("the sentinels to find each other", TOGETHER, || {
            let ready =
                format!("master0:name={GROUP},status=ok,address=127.0.0.1:{port},slaves=1,sentinels=3");
            group.sentinels.iter().all(|sentinel| {
                sentinel
                    .command(&["INFO", "sentinel"])
                    .is_ok_and(|info| String::from_utf8_lossy(&info).contains(&ready))
            })
        })?;
        Ok(group)
    }

    /// URL of database `db`.
    pub fn url(&self, db: u32) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|server| server.addr().to_string()).collect();
        let scheme = if self.servers[0].authority().exists() { "rediss" } else { "redis" };
        format!("{scheme}://{GROUP},{}/{db}", sentinels.join(","))
    }

    /// As [`Redis::outlive_tests`].
    ///
    /// # Errors
    /// If one of them is gone.
    pub fn outlive_tests(&mut self) -> io::Result<()> {
        self.servers.iter_mut().chain(&mut self.sentinels).try_for_each(Redis::outlive_tests)
    }

    /// Place of the master that most sentinels agree on, if it says so too.
    pub fn master(&self) -> Option<usize> {
        (0..self.servers.len()).find(|at| {
            let port = self.servers[*at].addr().port().to_string();
            let asked = self.sentinels.iter().filter(|sentinel| {
                let answer = sentinel.command(&["SENTINEL", "get-master-addr-by-name", GROUP]);
                answer.is_ok_and(|answer| String::from_utf8_lossy(&answer).contains(&port))
            });
            2 * asked.count() > self.sentinels.len()
                && self.servers[*at].info("role").as_deref() == Some("master")
        })
    }

    /// Kills the master as a crash does and answers its place; the sentinels will find another. It
    /// comes back without its data, and is never made the master again.
    ///
    /// # Errors
    /// If there is no master to be found in time.
    pub fn kill_master(&mut self) -> io::Result<usize> {
        let mut master = None;
        until("a master", TOGETHER, || {
            master = self.master();
            master.is_some()
        })?;
        let master = master.unwrap_or_default();
        self.servers[master].kill();
        self.servers[master].configure("replica-priority 0");
        Ok(master)
    }

    /// Waits until the sentinels agree on a master other than the server at `gone`.
    ///
    /// # Errors
    /// If they do not in time.
    pub fn wait_for_other_than(&self, gone: usize) -> io::Result<()> {
        until("another master", TOGETHER, || self.master().is_some_and(|master| master != gone))
    }
}
