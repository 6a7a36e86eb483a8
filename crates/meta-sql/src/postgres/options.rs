//! The options in the URL of a PostgreSQL engine.
//!
//! `postgres://user:password@host:port/database?option=value`; several hosts are separated by
//! commas, and a host that begins with a slash is the directory of a unix socket. The password is
//! sent only to the server: neither the debug form nor any error shows it.

use std::{path::PathBuf, time::Duration};

use sluice_meta::engine::{EngineError, Label};
use sluice_net::{
    Address, Limits, Tls,
    tls::{Files, Verify},
    url::{self, Secret, Url, decoded, duration, number, one_of},
};

use crate::volume::Volume;

/// Where the database is, who we are there, and how it is used.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Tried in this order.
    pub(super) hosts: Vec<Address>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) database: String,
    /// How much a server's certificate must prove, and with which files.
    pub(super) tls: (TlsMode, Files),
    /// Whether a server that takes no writes is passed over; by itself if there are several hosts.
    pub(super) writable: Option<bool>,
    /// Deadline for a connection to be made.
    pub(super) connect_timeout: Duration,
    /// Deadline for an answer.
    pub(super) read_timeout: Duration,
    /// How many connections there are, without the one that listens.
    pub(super) limits: Limits,
    /// Whether statements stay prepared on their connection.
    pub(super) prepared: bool,
    /// What the tables and the engine are called.
    pub(super) volume: Volume,
    /// Settings that are sent to the server when a connection is made.
    pub(super) settings: Vec<(String, String)>,
}

/// How much a server's certificate must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsMode {
    /// Not encrypted.
    Disable,
    /// Encrypted if the server supports it.
    Prefer,
    /// Encrypted, without a check of the certificate.
    Require,
    /// The certificate comes from a known authority.
    VerifyCa,
    /// And names the host.
    VerifyFull,
}

const PORT: u16 = 5432;
/// Default for the connections of one client. A thousand clients need a pooler, whatever this is.
const MAX_OPEN: usize = 10;
/// The limit for 0, which means no limit in JuiceFS: as many as can be useful.
const UNLIMITED: usize = 64;
/// Most connections, whatever the URL says.
const MOST: usize = 256;

/// Options that are ours. Any other is a setting that is sent to the server.
pub(super) const KNOWN: &str = "host, port, user, dbname, database, sslmode, sslrootcert, sslcert, sslkey, search_path, \
     table_prefix, max_open_conns, max_idle_conns, max_idle_time, max_life_time, \
     connect_timeout, read_timeout, target_session_attrs, default_query_exec_mode";
const SSL_MODES: [(&str, TlsMode); 6] = [
    ("disable", TlsMode::Disable),
    ("allow", TlsMode::Prefer),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];

impl Options {
    pub(super) fn parse(url: &str) -> Result<Self, EngineError> {
        Self::read(url).map_err(|reason| EngineError::Refused { engine: "postgres".into(), reason })
    }

    fn read(url: &str) -> Result<Self, String> {
        let Url { scheme, user, password, hosts, path, options: query } = Url::parse(url)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err("the URL does not begin with postgres://".into());
        }
        let mut options = Self {
            hosts: Vec::new(),
            user: user.unwrap_or_default(),
            password,
            database: decoded(path.strip_prefix('/').unwrap_or(path))?,
            tls: (TlsMode::Prefer, Files::default()),
            writable: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            limits: Limits::new(MAX_OPEN, UNLIMITED),
            prepared: true,
            settings: Vec::new(),
            volume: Volume::new(""),
        };
        let (mut hosts, mut port) = (hosts.to_owned(), PORT);
        for (name, value) in url::options(&query.replace('+', " "))? {
            match name {
                "host" => hosts = value,
                "port" => port = number(name, &value)?,
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
        let limits = &mut options.limits;
        limits.max_open = limits.max_open.min(MOST);
        limits.max_idle = limits.max_idle.clamp(1, limits.max_open);
        options.volume.label = Label(options.describe().into());
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        if self.limits.set(name, &value)? {
            return Ok(());
        }
        let time = |or: Duration| {
            duration(name, &value).map(|time| Some(time).filter(|time| !time.is_zero()).unwrap_or(or))
        };
        let file = |value: String| Some(PathBuf::from(value));
        match name {
            "user" => self.user = value,
            // Only there it is masked in the process title.
            "password" => return Err("write the password before the @, or into META_PASSWORD".into()),
            "dbname" | "database" => self.database = value,
            "sslmode" => self.tls.0 = one_of(name, &value, &SSL_MODES)?,
            "sslrootcert" => self.tls.1.ca_file = file(value),
            "sslcert" => self.tls.1.cert_file = file(value),
            "sslkey" => self.tls.1.key_file = file(value),
            "target_session_attrs" => {
                let whether = [("any", false), ("read-write", true), ("primary", true)];
                self.writable = Some(one_of(name, &value, &whether)?);
            }
            // 0 means the usual time, as every wait has a deadline.
            "connect_timeout" => self.connect_timeout = time(self.connect_timeout)?,
            "read_timeout" => self.read_timeout = time(self.read_timeout)?,
            "default_query_exec_mode" => self.prepared = value == "cache_statement",
            "statement_cache_capacity" => self.prepared = number::<usize>(name, &value)? > 0,
            "description_cache_capacity" => {}
            "table_prefix" => self.volume.set_prefix(&value)?,
            "search_path" if value.contains(',') => {
                return Err(format!("search_path={value} names several schemas; name one"));
            }
            _ => self.settings.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// Reads the certificates.
    pub(super) fn load_tls(&self) -> Result<Tls, String> {
        let (mode, files) = &self.tls;
        let verify = match mode {
            TlsMode::VerifyFull => Verify::Host,
            TlsMode::VerifyCa => Verify::Authority,
            // As libpq does: if the URL names authorities, they are checked.
            _ if files.ca_file.is_some() => Verify::Authority,
            _ => Verify::Nothing,
        };
        Tls::new(verify, files)
    }

    /// The address for messages, without secrets.
    fn describe(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Address::to_string).collect();
        format!("postgres://{}@{}/{}", self.user, hosts.join(","), self.database)
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, String> {
    hosts
        .split(',')
        .map(|host| {
            let host = decoded(host)?;
            if host.starts_with('/') {
                return Ok(Address::Unix(format!("{host}/.s.PGSQL.{port}").into()));
            }
            Address::parse(&host, port)
        })
        .collect()
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
        assert_eq!(full.hosts, [Address::Tcp("db.example".into(), 6000)]);
        assert_eq!((full.user.as_str(), &full.password), ("me", &Some("p@s/s".into())));
        assert_eq!((full.database.as_str(), full.tls.0), ("vol", TlsMode::VerifyFull));
        assert_eq!((full.limits.max_open, full.limits.max_idle), (7, 7));
        assert_eq!(full.limits.max_idle_time, Some(Duration::from_mins(2)));
        assert_eq!(full.volume.prefix(), "jfs_x_");
        let notice: Vec<_> =
            full.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(notice, [("search_path", "fs"), ("application_name", "a b")]);
        assert_eq!(&*full.volume.label.0, "postgres://me@db.example:6000/vol");
        assert!(!format!("{full:?}").contains("p@s/s"));
        for url in [
            "postgres:///vol?host=/run/pg&user=me",
            "postgres://me@/vol?host=/run/pg",
            "postgresql://me@%2Frun%2Fpg/vol",
        ] {
            let unix = Options::parse(url).expect(url);
            assert_eq!(unix.hosts, [Address::Unix("/run/pg/.s.PGSQL.5432".into())], "{url}");
            assert_eq!((unix.user.as_str(), unix.database.as_str()), ("me", "vol"), "{url}");
        }
        let many = Options::parse("postgres://a,[::1]:7/x?port=9").expect("valid");
        assert_eq!(many.hosts, [Address::Tcp("a".into(), 9), Address::Tcp("::1".into(), 7)]);
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
