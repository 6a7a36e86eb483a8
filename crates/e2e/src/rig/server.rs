//! What keeps the metadata of a volume to test on.

use super::{PATIENCE, until};
use anyhow::{Context, bail};
use sluice_testkit::server::{Mariadb, Postgres, RedisCluster, RedisSentinel, Tikv};
use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

/// What keeps the metadata; killed when it is dropped.
#[derive(Debug)]
pub(super) enum Server {
    Process(Child),
    RedisCluster(#[allow(dead_code, reason = "kept until the volume goes")] RedisCluster),
    RedisSentinel(#[allow(dead_code, reason = "kept until the volume goes")] RedisSentinel),
    Postgres(#[allow(dead_code, reason = "kept until the volume goes")] Postgres),
    Tikv(#[allow(dead_code, reason = "kept until the volume goes")] Tikv),
    Mariadb(Mariadb),
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A Redis on a free port of the loopback, with its files in `folder`.
pub(super) fn redis(folder: &Path) -> anyhow::Result<(Server, u16)> {
    let files = folder.join("redis");
    std::fs::create_dir_all(&files)?;
    // The port is free until somebody takes it: another try then.
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = File::options().append(true).create(true).open(folder.join("redis.log"))?;
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--appendonly",
                "yes",
                "--save",
                "",
                "--dir",
            ])
            .arg(&files)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start redis-server: make setup installs it")?;
        let mut server = Server::Process(child);
        let mut died = false;
        until("redis-server to answer", PATIENCE, || {
            if let Server::Process(child) = &mut server {
                died = child.try_wait().ok().flatten().is_some();
            }
            died || TcpStream::connect(("127.0.0.1", port)).is_ok()
        })?;
        if !died {
            return Ok((server, port));
        }
    }
    bail!(
        "redis-server does not start: {}",
        std::fs::read_to_string(folder.join("redis.log")).unwrap_or_default()
    )
}
