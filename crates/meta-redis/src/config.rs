//! What a Redis URL says.
//!
//! Options have the names that JuiceFS gives them. The password leaves this module only towards the server: neither
//! [`Config`]'s debug form nor any error shows it.

use std::{fmt, path::PathBuf, time::Duration};

use sluice_meta::engine::EngineError;
use url::Url;

/// Where the database is, who we are there, and how long to wait.
#[derive(Clone)]
pub struct Config {
    /// The server.
    pub address: Address,
    /// Number of the database.
    pub db: u32,
    /// User name, if not the default user.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Encryption, if any.
    pub tls: Option<Tls>,
    /// Deadline for a connection to be made.
    pub dial_timeout: Duration,
    /// Deadline for an answer.
    pub read_timeout: Duration,
    /// Deadline for a request to be sent.
    pub write_timeout: Duration,
    /// What all keys begin with.
    pub prefix: Vec<u8>,
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a socket.
    Unix(PathBuf),
}

/// How a connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// File with the client's certificate, PEM.
    pub cert_file: Option<PathBuf>,
    /// File with the client's key, PEM.
    pub key_file: Option<PathBuf>,
    /// File with the certificates to trust instead of the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Take any certificate.
    pub insecure: bool,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

impl Config {
    /// Reads `redis://`, `rediss://` and `unix://` URLs.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it is none.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let url = Url::parse(text).map_err(|error| refused(format!("the URL cannot be read: {error}")))?;
        let unix = match url.scheme() {
            "redis" | "rediss" => false,
            "unix" => true,
            other => {
                return Err(refused(format!(
                    "unknown scheme {other}://; use redis://, rediss:// or unix://"
                )));
            }
        };
        let address = if unix {
            let host = url.host_str().unwrap_or_default();
            Address::Unix(PathBuf::from(format!("{host}{}", decoded(url.path())?)))
        } else {
            let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
            if host.contains(',') {
                return Err(refused(
                    "several hosts (Sentinel, Cluster) are not supported yet; name one server".into(),
                ));
            }
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Address::Tcp(host.into(), url.port().unwrap_or(6379))
        };
        let mut config = Self {
            address,
            db: if unix { 0 } else { number(url.path().trim_matches('/'))? },
            user: Some(decoded(url.username())?).filter(|user| !user.is_empty()),
            password: url.password().map(decoded).transpose()?.filter(|password| !password.is_empty()),
            tls: (url.scheme() == "rediss").then(Tls::default),
            dial_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(5),
            prefix: Vec::new(),
        };
        for (name, value) in url.query_pairs() {
            config.set(&name.replace('_', "-"), &value)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), EngineError> {
        let mut tls = self.tls.take();
        let file = || Some(PathBuf::from(value));
        match (name, &mut tls) {
            ("db", _) => self.db = number(value)?,
            ("dial-timeout", _) => self.dial_timeout = duration(name, value)?,
            ("read-timeout", _) => self.read_timeout = duration(name, value)?,
            ("write-timeout", _) => self.write_timeout = duration(name, value)?,
            ("tls-cert-file", Some(tls)) => tls.cert_file = file(),
            ("tls-key-file", Some(tls)) => tls.key_file = file(),
            ("tls-ca-cert-file", Some(tls)) => tls.ca_file = file(),
            ("insecure-skip-verify", Some(tls)) => tls.insecure = !matches!(value, "false" | "0"),
            // Retries are made by whoever asks, with a patience of their own.
            ("max-retries" | "min-retry-backoff" | "max-retry-backoff", _) => {}
            _ => tracing::warn!(option = name, "this option of the Redis URL has no effect"),
        }
        self.tls = tls;
        Ok(())
    }

    /// The address for messages, without secrets.
    pub(crate) fn label(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => {
                format!("{scheme}://[{host}]:{port}/{}", self.db)
            }
            Address::Tcp(host, port) => format!("{scheme}://{host}:{port}/{}", self.db),
            Address::Unix(path) => format!("unix://{}?db={}", path.display(), self.db),
        }
    }
}

fn refused(reason: String) -> EngineError {
    EngineError::Refused { engine: "redis".into(), reason }
}

fn decoded(text: &str) -> Result<String, EngineError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match (
            byte,
            rest.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()),
        ) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &rest[2..];
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| refused("the URL holds escapes that are no UTF-8".into()))
}

fn number(text: &str) -> Result<u32, EngineError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| refused(format!("\"{text}\" is no number of a database")))
}

/// Reads `30s`, `500ms`, `1m30s`, or a plain number of seconds.
fn duration(name: &str, text: &str) -> Result<Duration, EngineError> {
    let wrong = || refused(format!("\"{text}\" is no duration for {name}; write 30s or 500ms"));
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let value: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let seconds = match &rest[digits..unit] {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        total += Duration::try_from_secs_f64(value * seconds).map_err(|_| wrong())?;
        rest = &rest[unit..];
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_three_kinds() {
        let config =
            Config::parse("redis://me:p%40ss@[::1]:7000/3?read-timeout=1m30s&write_timeout=500ms&pool=9")
                .expect("valid");
        assert_eq!(config.address, Address::Tcp("::1".into(), 7000));
        assert_eq!(
            (config.db, config.user.as_deref(), config.password.as_deref()),
            (3, Some("me"), Some("p@ss"))
        );
        assert_eq!(config.read_timeout, Duration::from_secs(90));
        assert_eq!(config.write_timeout, Duration::from_millis(500));
        assert!(!format!("{config:?}").contains("p@ss"));
        let config = Config::parse("unix:///run/r.sock?db=2").expect("valid");
        assert_eq!((config.address, config.db), (Address::Unix("/run/r.sock".into()), 2));
        let config = Config::parse("rediss://host?tls-ca-cert-file=/ca.pem").expect("valid");
        assert_eq!(config.tls.and_then(|tls| tls.ca_file), Some("/ca.pem".into()));
        for bad in ["http://x", "redis://h/x", "redis://h?read-timeout=soon", "redis://a,b/1"] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
    }
}
