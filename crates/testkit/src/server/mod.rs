//! Servers that a test owns: started on free ports with their data in a temporary directory, gone when dropped.

mod keeper;
pub mod mariadb;
pub mod postgres;
mod proxy;
mod redis;
#[cfg(feature = "s3")]
pub mod s3;
mod tikv;

pub use mariadb::{Mariadb, MariadbOptions, mariadb};
pub use postgres::{Postgres, PostgresOptions, postgres};
pub use proxy::{Behaviour, Proxy};
pub use redis::{Redis, RedisOptions, redis};
pub use tikv::{Tikv, TikvOptions, TikvPart};

use std::net::{Ipv4Addr, TcpListener};

/// A TCP port of the loopback address that is free now.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
