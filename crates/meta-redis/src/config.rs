//! The options of a Redis URL.
//!
//! Options have the names of JuiceFS, those of go-redis that it passes on, and those of the SQL
//! engines. Passwords are sent only to the servers: neither [`Config`]'s debug form nor any error
//! shows them.

use std::{path::PathBuf, time::Duration};

use sluice_meta::engine::EngineError;
use sluice_net::{
    Address, Limits,
    tls::Files as Tls,
    url::{Secret, Url, deadline, decoded, number, options, unused},
};

/// The servers, the user, the deadlines, and the limits of connections.
#[derive(Clone, Debug)]
pub struct Config {
    /// The servers.
    pub servers: Servers,
    /// Number of the database; in a cluster, which has only one, the number that its keys begin
    /// with.
    pub db: u32,
    /// User name, if not the default user.
    pub user: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// Password of the sentinels, which is never in the URL.
    pub sentinel_password: Option<Secret>,
    /// Encryption, if any.
    pub tls: Option<Tls>,
    /// Deadline for a connection to be made, and for a sentinel or another node of a cluster to
    /// answer.
    pub dial_timeout: Duration,
    /// Deadline for an answer.
    pub read_timeout: Duration,
    /// Deadline for a request to be sent.
    pub write_timeout: Duration,
    /// The limits of connections, without those that listen.
    pub limits: Limits,
    /// How many replicas must have a commit before it is acknowledged.
    pub wait_replicas: u32,
}

/// Most connections by default. With one more that listens, a thousand clients stay below the
/// server's default limit of 10,000.
const MAX_OPEN: usize = 8;

/// The options that have an effect, with hyphens or underscores, without the other names of
/// go-redis. Those of the client cache have one in `meta`.
const OPTIONS: &str = "db, max_open_conns, max_idle_conns, max_idle_time, max_life_time, dial_timeout, read_timeout, \
                       write_timeout, wait-replicas, tls-ca-cert-file, tls-cert-file, tls-key-file, \
                       tls-server-name, insecure-skip-verify, client-cache, client-cache-size, \
                       client-cache-expire, client-cache-preload";

/// Options of JuiceFS and of go-redis that have no effect here: callers retry with their own time
/// limits, and `meta` has the client cache.
const IDLE: &str = "max-retries, min-retry-backoff, max-retry-backoff, max-redirects, pool-timeout, pool-fifo, \
                    min-idle-conns, idle-check-frequency, protocol, client-name, read-only, route-by-latency, \
                    route-by-random, client-cache, client-cache-size, client-cache-expire, client-cache-preload";

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server. If it belongs to a cluster, the cluster.
    One(Address),
    /// The server that these sentinels report as the master of the group.
    Sentinel {
        /// Name of the group.
        group: String,
        /// The sentinels.
        sentinels: Vec<Address>,
    },
    /// The cluster that these nodes belong to.
    Cluster(Vec<Address>),
}

impl Config {
    /// Reads `redis://`, `rediss://` and `unix://` URLs.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it is none.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        Self::read(text).map_err(|reason| EngineError::Refused { engine: "redis".into(), reason })
    }

    fn read(text: &str) -> Result<Self, String> {
        let Url { scheme, user, password, hosts, path, options: query } = Url::parse(text)?;
        if !matches!(scheme, "redis" | "rediss" | "unix") {
            return Err(format!("unknown scheme {scheme}://; use redis://, rediss:// or unix://"));
        }
        let (servers, db) = if scheme == "unix" {
            (Servers::One(Address::Unix(PathBuf::from(format!("{hosts}{}", decoded(path)?)))), 0)
        } else {
            (servers(hosts)?, database(path.trim_matches('/'))?)
        };
        let mut config = Self {
            servers,
            db,
            user,
            password,
            sentinel_password: None,
            tls: (scheme == "rediss").then(Tls::default),
            dial_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(5),
            limits: Limits::new(MAX_OPEN, MAX_OPEN),
            wait_replicas: 0,
        };
        for (name, value) in options(&query.replace('+', " "))? {
            config.set(&name.replace('_', "-"), &value)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        // Names of go-redis for common options.
        let shared = match name {
            "max-active-conns" | "pool-size" => "max-open-conns",
            "conn-max-idle-time" | "idle-timeout" => "max-idle-time",
            "conn-max-lifetime" | "max-conn-age" => "max-life-time",
            name => name,
        };
        if self.limits.set(shared, value)? {
            return Ok(());
        }
        let mut none = Tls::default();
        if self.tls.as_mut().unwrap_or(&mut none).set(name, value)? {
            if self.tls.is_none() {
                tracing::warn!(option = name, "this option has no effect without rediss://");
            }
            return Ok(());
        }
        match name {
            "db" => self.db = database(value)?,
            "dial-timeout" => self.dial_timeout = deadline(name, value)?,
            "read-timeout" => self.read_timeout = deadline(name, value)?,
            "write-timeout" => self.write_timeout = deadline(name, value)?,
            "wait-replicas" => self.wait_replicas = number(name, value)?,
            "route-read" => {
                tracing::warn!("route-read has no effect: all reads go to the server that takes the writes");
            }
            _ => unused(name, IDLE, OPTIONS)?,
        }
        Ok(())
    }

    /// The URL for messages, without secrets and options.
    pub(crate) fn label(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let list = |hosts: &[Address]| hosts.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let hosts = match &self.servers {
            Servers::One(Address::Unix(path)) => {
                return format!("unix://{}?db={}", path.display(), self.db);
            }
            Servers::One(address) => address.to_string(),
            Servers::Sentinel { group, sentinels } => format!("{group},{}", list(sentinels)),
            Servers::Cluster(nodes) => list(nodes),
        };
        format!("{scheme}://{hosts}/{}", self.db)
    }
}

/// Reads the hosts of a URL: one, a master's name and its sentinels, or nodes of a cluster.
fn servers(hosts: &str) -> Result<Servers, String> {
    let address = |host: &str, port| Address::parse(&decoded(host)?, port);
    let Some((first, rest)) = hosts.split_once(',') else {
        return Ok(Servers::One(address(hosts, 6379)?));
    };
    let list =
        |hosts: &str, port| hosts.split(',').map(|host| address(host, port)).collect::<Result<Vec<_>, _>>();
    // A first name without a port is the name of a group. Its sentinels may share the port of the
    // last one.
    if first.contains(':') {
        return Ok(Servers::Cluster(list(hosts, 6379)?));
    }
    if !rest.contains(':') {
        return Err("several hosts without a port are neither sentinels nor a cluster: write \
                    MASTER,SENTINEL:26379 or HOST:6379,HOST:6379"
            .into());
    }
    let last = rest.rsplit(',').next().unwrap_or(rest);
    let port = if let Address::Tcp(_, port) = address(last, 26379)? { port } else { 26379 };
    Ok(Servers::Sentinel { group: decoded(first)?, sentinels: list(rest, port)? })
}

fn database(text: &str) -> Result<u32, String> {
    if text.is_empty() { Ok(0) } else { number("db", text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    #[test]
    fn urls_of_the_three_kinds() {
        let config = Config::parse(
            "redis://me:p%40ss@[::1]:7000/3?read-timeout=1m30s&write_timeout=500ms&pool_fifo=true",
        )
        .expect("valid");
        assert_eq!(config.servers, Servers::One(tcp("::1", 7000)));
        assert_eq!(
            (config.db, config.user.as_deref(), config.password.clone()),
            (3, Some("me"), Some("p@ss".into()))
        );
        assert_eq!(config.read_timeout, Duration::from_secs(90));
        assert_eq!(config.write_timeout, Duration::from_millis(500));
        assert!(!format!("{config:?}").contains("p@ss"));
        let config = Config::parse("unix:///run/r.sock?db=2").expect("valid");
        assert_eq!((config.servers, config.db), (Servers::One(Address::Unix("/run/r.sock".into())), 2));
        let config = Config::parse("unix://:pw@/run/r.sock").expect("valid");
        assert_eq!(config.servers, Servers::One(Address::Unix("/run/r.sock".into())));
        assert_eq!((config.user, config.password), (None, Some("pw".into())));
        let config =
            Config::parse("rediss://host?tls-ca-cert-file=/ca.pem&tls_server_name=x").expect("valid");
        assert_eq!(config.servers, Servers::One(tcp("host", 6379)));
        let tls = config.tls.expect("encrypted");
        assert_eq!((tls.ca_file, tls.server_name.as_deref()), (Some("/ca.pem".into()), Some("x")));
        for bad in [
            "http://x",
            "redis:x",
            "redis://h/x",
            "redis://h:port",
            "redis://h?read-timeout=soon",
            "redis://h?read-timeout=0",
            "redis://h?max-open-conns=many",
            "redis://a,b/1",
        ] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_option_that_there_is_not_is_an_error_and_one_of_juicefs_is_none() {
        for wrong in ["pool=9", "read-timout=3s", "tls-ca=/ca.pem", "="] {
            let error = Config::parse(&format!("redis://u:secret@h?{wrong}")).expect_err(wrong).to_string();
            let name = wrong.split('=').next().unwrap_or_default();
            assert!(error.contains(&format!("\"{name}\"")) && !error.contains("secret"), "{error}");
            assert!(error.ends_with(OPTIONS) && error.contains("client-cache-preload"), "{error}");
        }
        for option in OPTIONS.split(", ").chain(IDLE.split(", ")) {
            let value = if option.ends_with("-file") { "/f" } else { "1" };
            for scheme in ["redis", "rediss"] {
                for option in [option.replace('-', "_"), option.replace('_', "-")] {
                    Config::parse(&format!("{scheme}://h?{option}={value}")).expect(&option);
                }
            }
        }
        let documented = "route-read=replica&client-cache=true&client-cache-size=500000&client-cache-expire=60s\
                          &client-cache-preload=10000&min-retry-backoff=20ms&max-retry-backoff=10s";
        Config::parse(&format!("redis://h/1?{documented}")).expect("as JuiceFS has them");
    }

    #[test]
    fn sentinels_and_clusters_are_told_apart_as_juicefs_does() {
        for (url, sentinels, label) in [
            ("redis://:pw@group,s1,s2:7/3", [("s1", 7), ("s2", 7)], "redis://group,s1:7,s2:7/3"),
            ("rediss://group,s1:1,s2:", [("s1", 1), ("s2", 26379)], "rediss://group,s1:1,s2:26379/0"),
            ("redis://group,[::1]:1,s2:5/0", [("::1", 1), ("s2", 5)], "redis://group,[::1]:1,s2:5/0"),
        ] {
            let config = Config::parse(url).expect(url);
            let sentinels = sentinels.map(|(host, port)| tcp(host, port)).to_vec();
            assert_eq!(config.servers, Servers::Sentinel { group: "group".into(), sentinels }, "{url}");
            assert_eq!(config.label(), label);
        }
        let config = Config::parse("redis://me:pw@h1:7000,[::1]:7001,h3/2").expect("valid");
        let nodes = vec![tcp("h1", 7000), tcp("::1", 7001), tcp("h3", 6379)];
        assert_eq!((config.servers, config.db), (Servers::Cluster(nodes), 2));
    }

    #[test]
    fn connections_are_limited_by_any_of_their_names() {
        let config = Config::parse("redis://h").expect("valid");
        assert_eq!((config.limits.max_open, config.limits.max_idle), (MAX_OPEN, usize::MAX));
        assert_eq!(
            (config.limits.max_idle_time, config.limits.max_life_time),
            (Some(Duration::from_mins(1)), None)
        );
        let config =
            Config::parse("redis://h?max_open_conns=3&max-idle-conns=2&max_idle_time=9&max-life-time=1h");
        let config = config.expect("valid");
        assert_eq!((config.limits.max_open, config.limits.max_idle), (3, 2));
        assert_eq!(config.limits.max_idle_time, Some(Duration::from_secs(9)));
        assert_eq!(config.limits.max_life_time, Some(Duration::from_hours(1)));
        let config = Config::parse("redis://h?pool_size=20&conn_max_idle_time=0&conn_max_lifetime=5m");
        let config = config.expect("valid");
        assert_eq!((config.limits.max_open, config.limits.max_idle_time), (20, None));
        assert_eq!(config.limits.max_life_time, Some(Duration::from_mins(5)));
    }
}
