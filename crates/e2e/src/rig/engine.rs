//! The engines that volumes are tested on.

/// Where the metadata is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// A Redis of the rig's own, `appendonly yes`.
    Redis,
    /// A Redis Cluster of the rig's own, three masters.
    RedisCluster,
    /// A Redis master of the rig's own with a replica and three sentinels.
    RedisSentinel,
    /// A PostgreSQL of the rig's own, as durable as servers are.
    Postgres,
    /// A placement driver and a TiKV service of the rig's own.
    Tikv,
    /// An etcd of the rig's own, three members that write to disk before they answer.
    Etcd,
    /// A MariaDB of the rig's own, whose commits wait for the disk.
    Mariadb,
}
