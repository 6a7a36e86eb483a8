//! What the URL of a PostgreSQL engine says.
//!
//! `postgres://user:password@host:port/database?option=value`; several hosts are separated by
//! commas, and a host that begins with a slash is the directory of a unix socket. The password
//! leaves this module only towards the server: neither the debug form nor any error shows it.

use std::{fmt, path::PathBuf, time::Duration};

use sluice_meta::engine::EngineError;

use crate::naming::Naming;

/// Where the database is, who we are there, and how it is used.
#[derive(Clone)]
pub(super) struct Options {
    /// Tried in this order.
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
    pub(super) tls: Tls,
    /// Whether a server that takes no writes is passed over; by itself if there are several hosts.
    pub(super) writable: Option<bool>,
    /// Deadline for a connection to be made.
    pub(super) connect_timeout: Duration,
    /// Deadline for an answer.
    pub(super) read_timeout: Duration,
    /// Most connections at once, without the one that listens.
    pub(super) max_open: usize,
    /// Most connections kept while there is nothing to do.
    pub(super) max_idle: usize,
    /// How long a connection is kept while there is nothing to do.
    pub(super) max_idle_time: Option<Duration>,
    /// How long a connection is used at all.
    pub(super) max_life_time: Option<Duration>,
    /// Whether statements stay prepared on their connection.
    pub(super) prepared: bool,
    /// What the tables are called.
    pub(super) naming: Naming,
    /// Settings that the server is told when a connection is made.
    pub(super) settings: Vec<(String, String)>,
    /// Name of the engine in messages.
    pub(super) label: String,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Tcp(String, u16),
    /// Path of the socket.
    Unix(PathBuf),
}

/// How much a server's certificate must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsMode {
    /// Not encrypted.
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted, whoever the server is.
    Require,
    /// The certificate comes from a known authority.
    VerifyCa,
    /// And names the host.
    VerifyFull,
}

/// Encryption.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) mode: TlsMode,
    /// Certificates to trust instead of the system's, PEM.
    pub(super) root: Option<PathBuf>,
    /// The client's certificate and key, PEM.
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

const PORT: u16 = 5432;
/// Connections of one client. A thousand clients want a pooler in between, whatever this is.
const MAX_OPEN: usize = 10;
/// After this time without work a connection is given back to the server.
const MAX_IDLE_TIME: Duration = Duration::from_mins(1);

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl Options {
    pub(super) fn parse(url: &str) -> Result<Self, EngineError> {
        Self::read(url).map_err(|reason| EngineError::Refused { engine: "postgres".into(), reason })
    }

    fn read(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or("the URL does not begin with postgres://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let key = query.split('=').next().unwrap_or_default();
        if database.contains('@') || key.contains('@') {
            // To name the part before it would show the beginning of the password.
            return Err(
                "a / in a user's name or a password is written as %2F, a ? as %3F, an @ in a database's as %40".into()
            );
        }
        let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
            None => (decoded(who)?, None),
        };
        let mut options = Self {
            hosts: Vec::new(),
            user,
            password: password.filter(|password| !password.is_empty()),
            database: decoded(database)?,
            tls: Tls { mode: TlsMode::Prefer, root: None, cert: None, key: None },
            writable: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            max_open: MAX_OPEN,
            max_idle: usize::MAX,
            max_idle_time: Some(MAX_IDLE_TIME),
            max_life_time: None,
            prepared: true,
            naming: Naming::default(),
            settings: Vec::new(),
            label: String::new(),
        };
        let (mut hosts, mut port) = (hosts.to_owned(), PORT);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(&value.replace('+', " "))?;
            match name {
                "host" => hosts = value,
                "port" => port = value.parse().map_err(|_| format!("port={value} is no port"))?,
                _ => options.set(&name.replace('-', "_"), value)?,
            }
        }
        options.hosts = addresses(&hosts, port)?;
        options.writable.get_or_insert(options.hosts.len() > 1);
        if options.user.is_empty() {
            options.user = "postgres".into();
        }
        if options.database.is_empty() {
            options.database.clone_from(&options.user);
        }
        options.max_idle = options.max_idle.clamp(1, options.max_open);
        options.label = options.describe();
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let count = |value: &str| value.parse::<usize>().map_err(|_| format!("{name}={value} is no number"));
        let file = |value: String| Some(PathBuf::from(value));
        match name {
            "user" => self.user = value,
            // Only there it is masked in the process title.
            "password" => return Err("write the password before the @, or into META_PASSWORD".into()),
            "dbname" | "database" => self.database = value,
            "sslmode" => self.tls.mode = tls_mode(&value)?,
            "sslrootcert" => self.tls.root = file(value),
            "sslcert" => self.tls.cert = file(value),
            "sslkey" => self.tls.key = file(value),
            "target_session_attrs" => {
                self.writable = match &*value {
                    "any" => Some(false),
                    "read-write" | "primary" => Some(true),
                    _ => return Err(format!("{name}={value} is none of any, read-write, primary")),
                }
            }
            "connect_timeout" => {
                self.connect_timeout = duration(name, &value)?.unwrap_or(self.connect_timeout);
            }
            "read_timeout" => self.read_timeout = duration(name, &value)?.unwrap_or(self.read_timeout),
            // Without a limit, as JuiceFS takes 0, means as many as there can be use for.
            "max_open_conns" => {
                self.max_open = match count(&value)? {
                    0 => 64,
                    open => open.clamp(1, 256),
                }
            }
            "max_idle_conns" => self.max_idle = count(&value)?,
            "max_idle_time" => self.max_idle_time = duration(name, &value)?,
            "max_life_time" => self.max_life_time = duration(name, &value)?,
            "default_query_exec_mode" => self.prepared = value == "cache_statement",
            "statement_cache_capacity" => self.prepared = count(&value)? > 0,
            "description_cache_capacity" => {}
            "table_prefix" => self.naming = Naming::new(&value)?,
            "search_path" if value.contains(',') => {
                return Err(format!("search_path={value} names several schemas; name one"));
            }
            _ => self.settings.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// The address for messages, without secrets.
    fn describe(&self) -> String {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|host| match host {
                Host::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
                Host::Tcp(host, port) => format!("{host}:{port}"),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        format!("postgres://{}@{}/{}", self.user, hosts.join(","), self.database)
    }
}

fn tls_mode(value: &str) -> Result<TlsMode, String> {
    Ok(match value {
        "disable" => TlsMode::Disable,
        "allow" | "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        _ => {
            return Err(format!(
                "sslmode={value} is none of disable, allow, prefer, require, verify-ca, verify-full"
            ));
        }
    })
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Host>, String> {
    hosts
        .split(',')
        .map(|host| {
            let host = decoded(host)?;
            if host.starts_with('/') {
                return Ok(Host::Unix(format!("{host}/.s.PGSQL.{port}").into()));
            }
            let (name, port) = match host.rsplit_once(':') {
                Some((name, number)) if !number.contains(']') => {
                    (name, number.parse().map_err(|_| format!("\"{number}\" is no port"))?)
                }
                _ => (host.as_str(), port),
            };
            let name = name.trim_start_matches('[').trim_end_matches(']');
            Ok(Host::Tcp(if name.is_empty() { "127.0.0.1".into() } else { name.to_owned() }, port))
        })
        .collect()
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        let escape =
            tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (byte, escape) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &tail[2..];
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the URL holds escapes that are no UTF-8".into())
}

/// Reads `30s`, `500ms`, `5m`, `1h`, or a plain number of seconds; 0 means none.
fn duration(name: &str, text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("{name}={text} is no duration; write 30s or 500ms");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..end].parse().map_err(|_| wrong())?;
    let unit = match &text[end..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let duration = Duration::try_from_secs_f64(value * unit).map_err(|_| wrong())?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_all_kinds() {
        let full = Options::parse(
            "postgres://me:p%40s%2Fs@db.example:6000/vol?sslmode=verify-full&sslrootcert=/ca.pem&search_path=fs\
             &table_prefix=x&max-open-conns=7&max_idle_time=2m&application_name=a+b",
        )
        .expect("valid");
        assert_eq!(full.hosts, [Host::Tcp("db.example".into(), 6000)]);
        assert_eq!((full.user.as_str(), full.password.as_deref()), ("me", Some("p@s/s")));
        assert_eq!((full.database.as_str(), full.tls.mode), ("vol", TlsMode::VerifyFull));
        assert_eq!((full.max_open, full.max_idle), (7, 7));
        assert_eq!(full.max_idle_time, Some(Duration::from_mins(2)));
        assert_eq!(full.naming.prefix(), "jfs_x_");
        let told: Vec<_> =
            full.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(told, [("search_path", "fs"), ("application_name", "a b")]);
        assert_eq!(format!("{full:?}"), "postgres://me@db.example:6000/vol");
        for url in [
            "postgres:///vol?host=/run/pg&user=me",
            "postgres://me@/vol?host=/run/pg",
            "postgresql://me@%2Frun%2Fpg/vol",
        ] {
            let unix = Options::parse(url).expect(url);
            assert_eq!(unix.hosts, [Host::Unix("/run/pg/.s.PGSQL.5432".into())], "{url}");
            assert_eq!((unix.user.as_str(), unix.database.as_str()), ("me", "vol"), "{url}");
        }
        let many = Options::parse("postgres://a,[::1]:7/x?port=9").expect("valid");
        assert_eq!(many.hosts, [Host::Tcp("a".into(), 9), Host::Tcp("::1".into(), 7)]);
        assert_eq!((many.writable, full.writable), (Some(true), Some(false)));
        let any = Options::parse("postgres://a,b/x?target_session_attrs=any").expect("valid");
        assert_eq!(any.writable, Some(false));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for bad in [
            "mysql://x",
            "postgres://u:secret@h:port/x",
            "postgres://u:secret@h/x?sslmode=maybe",
            "postgres://u:secret@h/x?max_idle_time=soon",
            "postgres://u:secret@h/x?search_path=a,b",
            "postgres://u:secret@h/x?table_prefix=a;b",
        ] {
            let error = Options::parse(bad).expect_err(bad).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
