//! Starts the database server for the metadata of a test volume.

use super::{engine::Engine, point::TIMEOUT};
use anyhow::{Context, bail};
use sluice_testkit::server::{
    Etcd, EtcdOptions, Mariadb, MariadbOptions, Postgres, PostgresOptions, RedisCluster, RedisOptions,
    RedisSentinel, Tikv, TikvOptions,
};
use sluice_testkit::wait::until;
use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
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
    Etcd(#[allow(dead_code, reason = "kept until the volume goes")] Etcd),
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

/// An engine that runs.
pub(super) struct Started {
    /// None for a file.
    pub(super) server: Option<Server>,
    /// URL of an empty database.
    pub(super) meta: String,
    /// Where clients find it, if it is one server.
    pub(super) addr: Option<SocketAddr>,
}

/// Starts an engine with its files in `folder`. Servers that tell clients each other's addresses
/// are at `host`. PostgreSQL is as it comes, but for what `POSTGRES_SETTINGS` says
/// (`shared_buffers=4GB work_mem=1GB`).
pub(super) fn start(engine: Engine, folder: &Path, host: Ipv4Addr) -> anyhow::Result<Started> {
    let (server, meta, addr) = match engine {
        Engine::Sqlite => (None, format!("sqlite3://{}", folder.join("meta.db").display()), None),
        Engine::Redis => {
            let (server, port) = redis(folder)?;
            let addr = (Ipv4Addr::LOCALHOST, port).into();
            (Some(server), format!("redis://{addr}/1"), Some(addr))
        }
        Engine::RedisCluster => {
            let options = RedisOptions { durable: true, ..RedisOptions::default() };
            let server = RedisCluster::start(false, &options)?;
            let meta = server.url(1);
            (Some(Server::RedisCluster(server)), meta, None)
        }
        Engine::RedisSentinel => {
            let options = RedisOptions { durable: true, ..RedisOptions::default() };
            let server = RedisSentinel::start(&options)?;
            let meta = server.url(1);
            (Some(Server::RedisSentinel(server)), meta, None)
        }
        Engine::Postgres => {
            let settings = std::env::var("POSTGRES_SETTINGS").unwrap_or_default();
            let settings = settings.split_whitespace().map(Into::into).collect();
            let options = PostgresOptions { durable: true, settings, ..PostgresOptions::default() };
            let server = Postgres::start(&options)?;
            let (meta, addr) = (server.url(&server.database()?), server.addr());
            (Some(Server::Postgres(server)), meta, Some(addr))
        }
        Engine::Tikv => {
            let options = TikvOptions { region_size: 64 << 20, host, ..TikvOptions::default() };
            let server = Tikv::start(options)?;
            let meta = server.url("e2e");
            (Some(Server::Tikv(server)), meta, None)
        }
        Engine::Etcd => {
            let options = EtcdOptions { members: 3, durable: true, host, ..EtcdOptions::default() };
            let server = Etcd::start(&options)?;
            let meta = server.url("e2e");
            (Some(Server::Etcd(server)), meta, None)
        }
        Engine::Mariadb => {
            let options = MariadbOptions { durable: true, ..MariadbOptions::default() };
            let server = Mariadb::start(&options)?;
            let (meta, addr) = (server.url(&server.database()?), server.addr());
            (Some(Server::Mariadb(server)), meta, Some(addr))
        }
    };
    Ok(Started { server, meta, addr })
}

/// A Redis on a free port of the loopback, with its files in `folder`.
fn redis(folder: &Path) -> anyhow::Result<(Server, u16)> {
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
        until("redis-server to answer", TIMEOUT, || {
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
