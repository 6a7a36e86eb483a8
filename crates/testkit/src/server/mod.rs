//! Servers that a test owns: started on free ports with their data in a temporary directory, gone
//! when dropped.

pub mod certificates;
mod etcd;
mod keeper;
pub mod mariadb;
mod namespace;
mod network;
#[cfg(feature = "s3")]
pub mod objects;
mod port;
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
pub use network::{MACHINES, Network};
pub use postgres::{Postgres, PostgresOptions, postgres};
pub use proxy::{Behaviour, Proxy};
pub use redis::{Redis, RedisOptions, redis};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use shell::Shell;
pub use tikv::{Tikv, TikvOptions, TikvPart, TikvRegion};
