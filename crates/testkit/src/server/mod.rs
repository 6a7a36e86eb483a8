//! Servers that a test owns: started on free ports with their data in a temporary directory, gone when dropped.

mod etcd;
mod keeper;
pub mod mariadb;
mod namespace;
pub mod postgres;
mod proxy;
mod redis;
mod redis_cluster;
mod redis_sentinel;
#[cfg(feature = "s3")]
pub mod s3;
mod shell;
mod tikv;

pub use etcd::{Etcd, EtcdOptions};
pub use mariadb::{Mariadb, MariadbOptions, mariadb};
pub use namespace::Namespace;
pub use postgres::{Postgres, PostgresOptions, postgres};
pub use proxy::{Behaviour, Proxy};
pub use redis::{Redis, RedisOptions, redis};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use shell::Shell;
pub use tikv::{Tikv, TikvOptions, TikvPart, TikvRegion};

use std::net::{Ipv4Addr, TcpListener};

/// A TCP port of the loopback address that is free now.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until something holds, a minute and a half at most: sentinels that were held up do nothing for half a minute.
fn until(what: &str, mut holds: impl FnMut() -> bool) -> std::io::Result<()> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !holds() {
        if std::time::Instant::now() > deadline {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{what} takes too long")));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
