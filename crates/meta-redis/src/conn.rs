//! A blocking connection, and the pool of those that are idle.
//!
//! A failed exchange says whether the server can have seen the request whole: only then its effect is in doubt. A
//! connection on which an exchange failed is never used again.

use std::{fs, io, path::Path, sync::Arc};

use parking_lot::Mutex;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisError, ServerError, TlsCertificates, Value, io::tcp::TcpSettings,
};
use sluice_meta::engine::EngineError;

use crate::{
    config::{Address, Config, Tls},
    pipeline::Pipeline,
    wire::Wire,
};

/// Most idle connections kept for reads outside transactions.
const IDLE: usize = 8;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server cannot have seen the whole request.
    NotSent(String),
    /// The request was sent, the answer did not come.
    NoAnswer(String),
}

/// What a connection runs on.
enum Link {
    Plain(Wire),
    /// Encrypted connections are the library's.
    Encrypted(Box<redis::Connection>),
}

impl Link {
    fn send(&mut self, request: &[u8]) -> Result<(), String> {
        match self {
            Self::Plain(wire) => wire.send(request).map_err(|error| io_story(&error)),
            Self::Encrypted(inner) => inner.send_packed_command(request).map_err(|error| story(&error)),
        }
    }

    /// The next answer; errors of the server are values.
    fn receive(&mut self) -> Result<Value, String> {
        match self {
            Self::Plain(wire) => wire.receive().map_err(|error| io_story(&error)),
            Self::Encrypted(inner) => match inner.recv_response() {
                Err(error) => match ServerError::try_from(error) {
                    Ok(error) => Ok(Value::ServerError(error)),
                    Err(error) => Err(story(&error)),
                },
                answer => answer.map_err(|error| story(&error)),
            },
        }
    }
}

/// A connection.
pub(crate) struct Conn {
    link: Link,
    /// Whether an exchange succeeded on it before.
    used: bool,
}

impl Conn {
    /// Sends all commands in one piece and takes all answers. Scripts that the server does not know are sent again
    /// with their sources: an unknown script has done nothing.
    pub(crate) fn exchange(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let answers = self.once(pipeline, false)?;
        let unknown = |answer: &Value| matches!(answer, Value::ServerError(e) if e.code() == "NOSCRIPT");
        if answers.iter().any(unknown) { self.once(pipeline, true) } else { Ok(answers) }
    }

    fn once(&mut self, pipeline: &Pipeline, sources: bool) -> Result<Vec<Value>, Failure> {
        self.link.send(&pipeline.render(sources)).map_err(Failure::NotSent)?;
        let mut answers = Vec::with_capacity(pipeline.len());
        for _ in 0..pipeline.len() {
            answers.push(self.link.receive().map_err(Failure::NoAnswer)?);
        }
        self.used = true;
        Ok(answers)
    }
}

/// Makes connections and keeps idle ones.
pub(crate) struct Pool {
    pub(crate) config: Config,
    pub(crate) label: Arc<str>,
    client: Client,
    idle: Mutex<Vec<Conn>>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Result<Self, EngineError> {
        let label: Arc<str> = config.label().into();
        let refused = |reason: String| EngineError::Refused { engine: label.to_string(), reason };
        let client = client(&config).map_err(refused)?;
        Ok(Self { config, label, client, idle: Mutex::default() })
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Result<Conn, EngineError> {
        let link = if self.config.tls.is_some() {
            Link::Encrypted(Box::new(self.subscriber()?))
        } else {
            Link::Plain(self.plain()?)
        };
        Ok(Conn { link, used: false })
    }

    fn plain(&self) -> Result<Wire, EngineError> {
        let config = &self.config;
        let failed = |error: io::Error| self.unavailable(io_story(&error));
        let mut wire = Wire::connect(config).map_err(failed)?;
        let mut hello = Pipeline::default();
        if let Some(password) = &config.password {
            let auth = hello.command("AUTH");
            auth.extend(config.user.as_deref().map(str::as_bytes));
            auth.push(password.as_bytes());
        }
        if config.db != 0 {
            hello.command("SELECT").push_number(u64::from(config.db));
        }
        if hello.len() > 0 {
            wire.send(&hello.render(false)).map_err(failed)?;
            for _ in 0..hello.len() {
                self.sound(wire.receive().map_err(failed)?)?;
            }
        }
        wire.deadlines(config.read_timeout, config.write_timeout).map_err(failed)?;
        Ok(wire)
    }

    /// A new connection of the library's: for messages, and encrypted ones for everything.
    pub(crate) fn subscriber(&self) -> Result<redis::Connection, EngineError> {
        let config = &self.config;
        let connected = self.client.get_connection_with_timeout(config.dial_timeout).and_then(|inner| {
            inner.set_read_timeout(Some(config.read_timeout))?;
            inner.set_write_timeout(Some(config.write_timeout))?;
            Ok(inner)
        });
        connected.map_err(|error| match ServerError::try_from(error) {
            Ok(error) => self.judge(&error),
            Err(error) if error.kind() == redis::ErrorKind::AuthenticationFailed => {
                self.refused("the server refuses the user name or password".into())
            }
            Err(error) => self.unavailable(story(&error)),
        })
    }

    /// An idle connection or a new one.
    pub(crate) fn take(&self) -> Result<Conn, EngineError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.connect(), Ok)
    }

    /// Keeps a connection whose exchanges all succeeded.
    pub(crate) fn give(&self, conn: Conn) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(conn);
        }
    }

    /// Asks what may be asked twice, on `held` or an idle connection: one that went stale is replaced once.
    pub(crate) fn ask(
        &self,
        held: &mut Option<Conn>,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, EngineError> {
        loop {
            let mut conn = match held.take() {
                Some(conn) => conn,
                None => self.take()?,
            };
            match conn.exchange(pipeline) {
                Ok(answers) => {
                    *held = Some(conn);
                    return Ok(answers);
                }
                // Whatever closed this one closed the other idle ones too.
                Err(_) if conn.used => self.idle.lock().clear(),
                Err(Failure::NotSent(reason) | Failure::NoAnswer(reason)) => {
                    return Err(self.unavailable(reason));
                }
            }
        }
    }

    pub(crate) fn unavailable(&self, reason: String) -> EngineError {
        EngineError::Unavailable { engine: self.label.to_string(), reason }
    }

    pub(crate) fn refused(&self, reason: String) -> EngineError {
        EngineError::Refused { engine: self.label.to_string(), reason }
    }

    pub(crate) fn corrupt(&self, record: impl Into<String>, reason: impl Into<String>) -> EngineError {
        let engine = self.label.to_string();
        EngineError::Corrupt { engine, record: record.into(), reason: reason.into() }
    }

    /// What an error of the server means: nothing was done.
    pub(crate) fn judge(&self, error: &ServerError) -> EngineError {
        let details = error.details().unwrap_or_default();
        let advice = match error.code() {
            "DAMAGED" => {
                let (record, reason) = details.split_once(' ').unwrap_or((details, "wrong type"));
                return self.corrupt(record, reason);
            }
            "WRONGTYPE" => return self.corrupt("(a key)", details),
            "LOADING" => "it is still loading its data",
            "READONLY" => "it is a read-only replica; the URL must name the primary",
            "MASTERDOWN" => "it is a replica and its primary is down",
            "CLUSTERDOWN" => "its cluster is down",
            "TRYAGAIN" => "its cluster is moving keys",
            "BUSY" => "another script keeps it busy",
            "MISCONF" => "it cannot save its data to disk and takes no writes; see its log",
            "OOM" => "its memory is full (maxmemory); give it more",
            "NOREPLICAS" => "too few replicas are connected (min-replicas-to-write)",
            "NOAUTH" | "WRONGPASS" => {
                return self.refused("the server refuses the user name or password".into());
            }
            "NOPERM" => return self.refused(format!("the user lacks a permission: {details}")),
            "MOVED" | "ASK" | "CROSSSLOT" => {
                return self.refused("it is a Redis Cluster, which is not supported yet".into());
            }
            code => return self.refused(format!("{code} {details}")),
        };
        self.unavailable(advice.into())
    }

    /// The answer, if it is no error.
    pub(crate) fn sound(&self, answer: Value) -> Result<Value, EngineError> {
        if let Value::ServerError(error) = &answer { Err(self.judge(error)) } else { Ok(answer) }
    }

    /// An answer that is not of the shape it should have.
    pub(crate) fn odd(&self, what: &str) -> EngineError {
        self.refused(format!("its answer to {what} is of an unknown form; is it Redis 4 or newer?"))
    }
}

/// What happened, without what was sent.
fn story(error: &RedisError) -> String {
    if error.is_timeout() { "no answer within the deadline".into() } else { error.to_string() }
}

fn io_story(error: &io::Error) -> String {
    match error.kind() {
        // A socket's deadline shows as either.
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer within the deadline".into(),
        _ => error.to_string(),
    }
}

fn client(config: &Config) -> Result<Client, String> {
    let address = match (&config.address, &config.tls) {
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Address::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp(host, port), Some(tls)) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: tls.insecure,
            tls_params: None,
        },
    };
    let mut who = RedisConnectionInfo::default()
        .set_db(i64::from(config.db))
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    if let Some(user) = &config.user {
        who = who.set_username(user);
    }
    if let Some(password) = &config.password {
        who = who.set_password(password);
    }
    let info = address
        .into_connection_info()
        .map_err(|error| error.to_string())?
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(who);
    let client = match &config.tls {
        None => Client::open(info),
        Some(tls) => {
            // Fails only if the process has chosen its cipher library already.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            Client::build_with_tls(info, certificates(tls)?)
        }
    };
    client.map_err(|error| error.to_string())
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let client_tls = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        (None, None) => None,
        _ => return Err("tls-cert-file and tls-key-file go together".into()),
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca_file.as_deref().map(read).transpose()? })
}
