//! The options in the URL of a MySQL or MariaDB engine.
//!
//! `mysql://user:password@(host:port)/database?option=value`, as the Go driver that JuiceFS uses
//! reads it: the address may also be `tcp(host:port)`, `unix(socket)` or `(socket)`. What must stay
//! true: the password is sent only to the server. It appears neither in messages nor in the debug
//! form.

use std::time::Duration;

use sluice_meta::engine::EngineError;
use sluice_net::{
    Address, Limits,
    tls::Files,
    url::{self, Secret, decoded, one_of},
};

use crate::volume::Volume;

/// Where the database is, who we are there, and how connections to it are kept.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: String,
    pub(crate) tls: Tls,
    /// The authorities are trusted besides the usual ones.
    pub(crate) tls_files: Files,
    /// Deadline for a connection to be made, or to get free.
    pub(crate) connect_timeout: Duration,
    /// Deadline for an answer.
    pub(crate) read_timeout: Duration,
    /// How many connections there are, and for how long.
    pub(crate) limits: Limits,
    /// Whether a commit may go as one compound statement, where the server has them.
    pub(crate) compound: bool,
    /// Variables of the session that the URL sets: name and value, as SQL has them.
    pub(crate) variables: Vec<(String, String)>,
    /// What the tables and the engine are called.
    pub(crate) volume: Volume,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    /// If the server supports it, without a check of the certificate.
    Preferred,
    /// Without a check of the certificate.
    SkipVerify,
    /// The certificate must be trusted and name the host.
    Verify,
}

const SCHEME: &str = "mysql://";
const PORT: u16 = 3306;
/// Where the Go driver looks for a server whose socket has no path.
const SOCKET: &str = "/tmp/mysql.sock";

const NO_DATABASE: &str = "the URL names no database; write mysql://user:password@(host:3306)/database";

/// Default for the connections of one client. By default, servers accept about 150, and an idle
/// client keeps one.
const MAX_OPEN: usize = 12;
const MAX_IDLE: usize = 6;

/// Options that are ours. Any other is a variable of the session.
pub(super) const KNOWN: &str = "max_open_conns, max_idle_conns, max_idle_time, max_life_time, table_prefix, tls, \
     tls-ca-cert-file, tls-cert-file, tls-key-file, tls-server-name, timeout, readTimeout, compound";
const TLS: [(&str, Tls); 6] = [
    ("true", Tls::Verify),
    ("1", Tls::Verify),
    ("skip-verify", Tls::SkipVerify),
    ("preferred", Tls::Preferred),
    ("false", Tls::Off),
    ("0", Tls::Off),
];

/// Options of the Go driver that change nothing here.
const IGNORED: &str = "allowAllFiles, allowCleartextPasswords, allowFallbackToPlaintext, allowNativePasswords, \
     allowOldPasswords, charset, checkConnLiveness, clientFoundRows, collation, \
     columnsWithAlias, compress, connectionAttributes, interpolateParams, loc, \
     maxAllowedPacket, multiStatements, parseTime, rejectReadOnly, writeTimeout";

impl Options {
    /// Reads a URL. `password` is used if the URL has none.
    pub(crate) fn parse(url: &str, password: Option<String>) -> Result<Self, EngineError> {
        let parsed = Self::read(url.strip_prefix(SCHEME).unwrap_or(url));
        let mut options = parsed.map_err(|reason| EngineError::Refused { engine: "mysql".into(), reason })?;
        if options.password.is_none() {
            options.password = password.map(Secret);
        }
        Ok(options)
    }

    fn read(rest: &str) -> Result<Self, String> {
        // Passwords, paths of sockets and values of options may hold slashes.
        let place = || rest[..rest.find('?').unwrap_or(rest.len())].rfind('/');
        let slash = rest.find(")/").map(|at| at + 1).or_else(place).ok_or(NO_DATABASE)?;
        let (server, rest) = (&rest[..slash], &rest[slash + 1..]);
        let (database, query) = rest.split_once('?').unwrap_or((rest, ""));
        if database.is_empty() {
            return Err(NO_DATABASE.into());
        }
        let (who, server) = server.rsplit_once('@').map_or((None, server), |(who, at)| (Some(who), at));
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => Default::default(),
        };
        let address = address(server)?;
        let database = decoded(database)?;
        let label = match &address {
            Address::Tcp(..) => format!("{SCHEME}({address})/{database}"),
            Address::Unix(_) => format!("{SCHEME}unix({address})/{database}"),
        };
        let mut options = Self {
            address,
            user: Some(user).filter(|user| !user.is_empty()),
            password: Some(password).filter(|password| !password.is_empty()).map(Secret),
            database,
            tls: Tls::Off,
            tls_files: Files::default(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            limits: Limits { max_idle: MAX_IDLE, ..Limits::new(MAX_OPEN, MAX_OPEN) },
            compound: true,
            variables: Vec::new(),
            volume: Volume::new(&label),
        };
        for (name, value) in url::options(query)? {
            options.set(name, &value)?;
        }
        options.tls_files.identity().map(drop)?;
        Ok(options)
    }

    /// Applies one option. An option that neither we nor the driver have is a session variable, as
    /// in the driver.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.limits.set(name, value)? || self.tls_files.set(name, value)? {
            return Ok(());
        }
        match &*name.replace('-', "_") {
            "table_prefix" => self.volume.set_prefix(value)?,
            "timeout" => self.connect_timeout = duration(name, value)?,
            "readTimeout" => self.read_timeout = duration(name, value)?,
            "compound" => self.compound = url::boolean(name, value)?,
            "tls" => self.tls = one_of(name, value, &TLS)?,
            // Ignored, because the engine is correct only with READ COMMITTED.
            "tx_isolation" | "transaction_isolation" => {}
            _ if url::unused(name, IGNORED, KNOWN).is_ok() => {}
            variable if variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                if value.is_empty() || value.contains(';') {
                    return Err(format!("{name}={value} is no value of a variable of the session"));
                }
                self.variables.push((variable.to_owned(), value.to_owned()));
            }
            _ => return Err(url::unknown(name, KNOWN)),
        }
        Ok(())
    }
}

fn address(text: &str) -> Result<Address, String> {
    let wrong = || {
        format!("\"{text}\" is no address; write (host:port), tcp(host:port) or unix(/path/of/the/socket)")
    };
    let (kind, place) = match text.split_once('(') {
        Some((kind, rest)) => (kind, rest.strip_suffix(')').ok_or_else(wrong)?),
        None if text.is_empty() || text == "tcp" => ("tcp", ""),
        None if text == "unix" => ("unix", SOCKET),
        None => ("tcp", text),
    };
    match kind {
        "unix" => return Ok(Address::Unix(place.into())),
        "" if place.starts_with('/') => return Ok(Address::Unix(place.into())),
        "" | "tcp" | "tcp4" | "tcp6" => {}
        _ => return Err(wrong()),
    }
    Address::parse(place, PORT).map_err(|_| wrong())
}

/// Reads `30s`, `500ms`, `1m30s`. As for the Go driver, a number without a unit is none.
fn duration(name: &str, text: &str) -> Result<Duration, String> {
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{name}={text} is no duration; write 30s or 500ms"));
    }
    url::deadline(name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Options {
        Options::parse(url, None).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    #[test]
    fn addresses_are_those_of_the_go_driver() {
        for (url, address) in [
            ("mysql://u:p@(127.0.0.1:3307)/db", tcp("127.0.0.1", 3307)),
            ("mysql://u:p@tcp(host)/db", tcp("host", 3306)),
            ("mysql://u:p@tcp([::1]:4000)/db", tcp("::1", 4000)),
            ("mysql://u:p@([::1])/db", tcp("::1", 3306)),
            ("mysql://u:p@/db", tcp("127.0.0.1", 3306)),
            ("mysql://u:p@host:3308/db", tcp("host", 3308)),
            ("mysql://u:p@unix(/run/my.sock)/db", Address::Unix("/run/my.sock".into())),
            ("mysql://u:p@(/run/my.sock)/db?readTimeout=3s", Address::Unix("/run/my.sock".into())),
        ] {
            let options = parsed(url);
            assert_eq!((&options.address, &*options.database), (&address, "db"), "{url}");
            assert_eq!((options.user.as_deref(), options.password.as_deref()), (Some("u"), Some("p")));
        }
    }

    #[test]
    fn passwords_are_taken_as_they_stand_and_never_shown() {
        for (url, password) in [
            ("mysql://me:a/b@c:d@(h:1)/db", "a/b@c:d"),
            ("mysql://me:a%40b%2F@(h:1)/db", "a@b/"),
            ("mysql://me:100%@(h:1)/db", "100%"),
        ] {
            let options = parsed(url);
            assert_eq!(options.password.as_deref(), Some(password), "{url}");
            assert!(!format!("{options:?}").contains(password));
            assert_eq!(&*options.volume.label.0, "mysql://(h:1)/db");
        }
        let given = Options::parse("mysql://me@(h)/db", Some("env".into())).expect("valid");
        assert_eq!(given.password.as_deref(), Some("env"));
        let both = Options::parse("mysql://me:own@(h)/db", Some("env".into())).expect("valid");
        assert_eq!(both.password.as_deref(), Some("own"));
    }

    #[test]
    fn options_have_the_names_of_juicefs_and_its_driver() {
        let options = parsed(
            "mysql://u@(h)/db?max_open_conns=7&max-idle-conns=2&max_idle_time=9&max_life_time=0&table_prefix=x\
             &timeout=1m30s&readTimeout=500ms&tls=preferred&tls-ca-cert-file=/etc/ca.pem&parseTime=true\
             &innodb_lock_wait_timeout=3&sql_mode=%27TRADITIONAL%27&tx_isolation='SERIALIZABLE'&compound=false",
        );
        assert_eq!((options.limits.max_open, options.limits.max_idle), (7, 2));
        assert_eq!(options.limits.max_idle_time, Some(Duration::from_secs(9)));
        assert_eq!((options.limits.max_life_time, options.volume.prefix().as_str()), (None, "jfs_x_"));
        assert_eq!(options.connect_timeout, Duration::from_secs(90));
        assert_eq!((options.read_timeout, options.tls), (Duration::from_millis(500), Tls::Preferred));
        assert!(!options.compound && parsed("mysql://u@(h)/db").compound);
        assert_eq!(options.tls_files.ca_file, Some("/etc/ca.pem".into()));
        let variables = [("innodb_lock_wait_timeout", "3"), ("sql_mode", "'TRADITIONAL'")];
        assert_eq!(options.variables, variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for bad in [
            "mysql://u:secret@(h:1)",
            "mysql://u:secret@(h:1)/",
            "mysql://u:secret@(h:x)/db",
            "mysql://u:secret@ftp(h)/db",
            "mysql://u:secret@(h/db",
            "mysql://u:secret@(h)/db?max_open_conns=many",
            "mysql://u:secret@(h)/db?timeout=5",
            "mysql://u:secret@(h)/db?tls=maybe",
            "mysql://u:secret@(h)/db?compound=maybe",
            "mysql://u:secret@(h)/db?table_prefix=a;b",
            "mysql://u:secret@(h)/db?x=1;DROP",
            "mysql://u:secret@(h)/db?tls-key-file=k",
        ] {
            let Err(EngineError::Refused { engine, reason }) = Options::parse(bad, None) else {
                panic!("{bad} was taken");
            };
            assert!(!engine.contains("secret") && !reason.contains("secret"), "{bad}: {reason}");
        }
    }
}
