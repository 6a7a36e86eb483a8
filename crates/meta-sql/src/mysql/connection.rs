//! A connection, driven by the calling thread.
//!
//! The driver is asynchronous. Each connection has a runtime of its own, which runs only while a
//! thread waits for an answer, on that thread. What must stay true: after a failure that leaves
//! both sides out of sync, the connection is not used again.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use mysql_async::{
    ClientIdentity, Conn, DriverError, Error, IoError, Opts, OptsBuilder, Row, SslOpts, Value,
    prelude::Queryable,
};
use sluice_meta::engine::EngineError;
use sluice_net::{Address, Connection as Pooled};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

pub(super) use super::error::Failure;
use super::{
    error,
    options::{Options, Tls},
    style::Style,
};
use crate::codec::Columns;

/// The rows of each statement of a request.
pub(super) type Answers = Vec<Vec<Row>>;

/// Longest time to close a connection properly.
const CLOSING: Duration = Duration::from_millis(200);
/// Seconds for which a statement may wait for a lock: less than our own deadline for an answer.
const LOCK_WAIT: u64 = 10;
/// Seconds after which the server rolls back a transaction whose client sends nothing.
const IDLE_TRANSACTION: u64 = 30;

/// A connection to the server.
pub(super) struct Connection {
    /// None once it failed.
    conn: Option<Conn>,
    runtime: Runtime,
    read_timeout: Duration,
    /// Bytes of the largest request that the server takes.
    pub(super) max_packet: usize,
    /// How to send a transaction to it.
    pub(super) style: Style,
    /// When it last answered, if it ever did.
    pub(super) used: Option<Instant>,
}

impl Pooled for Connection {
    fn is_sound(&self) -> bool {
        self.conn.is_some()
    }

    /// The driver does not provide this.
    fn is_stale(&self) -> bool {
        false
    }
}

impl Connection {
    /// A new connection with its session set up.
    pub(super) fn open(options: &Options) -> Result<Self, EngineError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| options.volume.unavailable(error.to_string()))?;
        let connect = async {
            match Conn::new(opts(options, options.tls)).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                    if options.tls == Tls::Preferred =>
                {
                    Conn::new(opts(options, Tls::Off)).await
                }
                connected => connected,
            }
        };
        let connected = runtime.block_on(async { timeout(options.connect_timeout, connect).await });
        let conn = match connected {
            Ok(Ok(conn)) => conn,
            Ok(Err(Error::Server(error))) => return Err(options.classify(&error)),
            Ok(Err(Error::Driver(DriverError::NoClientSslFlagFromServer))) => {
                return Err(options
                    .volume
                    .refused("the server does not encrypt connections; write tls=false"));
            }
            Ok(Err(error)) => return Err(options.volume.unavailable(describe(&error))),
            Err(_) => return Err(options.volume.unavailable("no connection within the deadline")),
        };
        let mut new = Self {
            conn: Some(conn),
            runtime,
            read_timeout: options.read_timeout,
            max_packet: 1 << 20,
            style: Style::Single,
            used: None,
        };
        new.set_up(options)?;
        Ok(new)
    }

    /// Sets all of the session, once.
    fn set_up(&mut self, options: &Options) -> Result<(), EngineError> {
        let wait = LOCK_WAIT.min(options.read_timeout.as_secs()).max(1);
        // What comes in `/*M!` is for MariaDB alone: a client that is cut off does not keep for
        // ever what it locked, and how long a statement may take is what we wait for it. MySQL 8
        // would show for a day which number it gave last to a line of the change log.
        let mut text = format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
             SET NAMES utf8mb4;\
             SET autocommit=1,innodb_lock_wait_timeout={wait}\
             /*M!100300 ,idle_transaction_timeout={IDLE_TRANSACTION},max_statement_time=0 */\
             /*!80000 ,information_schema_stats_expiry=0 */"
        );
        for (name, value) in &options.variables {
            let _ = write!(text, ",{name}={value}");
        }
        // These the statements rely on: an error rather than a value cut off, and an index rather
        // than a scan of the whole table, which would wait for the locks of all others.
        text.push_str(
            ",sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',sql_safe_updates=1,time_zone='+00:00';\
             SELECT @@max_allowed_packet,VERSION() LIKE '%MariaDB%'",
        );
        let answers = self.exchange(&text).map_err(|failure| options.unanswered(failure))?;
        self.used = None;
        if let Some(row) = answers.last().and_then(|rows| rows.first())
            && let Ok(bytes) = row.int(0)
        {
            self.max_packet = bytes as usize;
            if options.compound && row.int(1) == Ok(1) {
                self.style = Style::Compound;
            }
        }
        Ok(())
    }

    /// Sends statements, apart by semicolons, and takes the answers to all of them. One trip.
    pub(super) fn exchange(&mut self, text: &str) -> Result<Answers, Failure> {
        let Some(conn) = &mut self.conn else { return Err(Failure::Lost("the connection is closed".into())) };
        let answered = self.runtime.block_on(async { timeout(self.read_timeout, ask(conn, text)).await });
        self.used = Some(Instant::now());
        let failure = match answered {
            Ok(Ok(answers)) => return Ok(answers),
            Ok(Err((Error::Server(error), done))) => Failure::Server(error, done),
            Ok(Err((error, _))) => Failure::Lost(describe(&error)),
            Err(_) => Failure::Lost("no answer within the deadline".into()),
        };
        let usable = matches!(&failure, Failure::Server(error, _) if !error::is_last(error));
        if !usable {
            self.close();
        }
        Err(failure)
    }

    /// Drops the connection without a message, because the server may not read it.
    fn close(&mut self) {
        let conn = self.conn.take();
        let _in_runtime = self.runtime.enter();
        drop(conn);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // Without this message, the server counts an aborted connection.
            let _ = self.runtime.block_on(async { timeout(CLOSING, conn.disconnect()).await });
        }
    }
}

async fn ask(conn: &mut Conn, text: &str) -> Result<Answers, (Error, usize)> {
    let mut answers = Answers::new();
    let mut result = conn.query_iter(text).await.map_err(|error| (error, 0))?;
    loop {
        let mut rows = Vec::new();
        while let Some(row) = result.next().await.map_err(|error| (error, answers.len()))? {
            rows.push(row);
        }
        answers.push(rows);
        if result.is_empty() {
            // The error of a later statement is returned when its rows are read.
            result.next().await.map_err(|error| (error, answers.len()))?;
            return Ok(answers);
        }
    }
}

fn opts(options: &Options, tls: Tls) -> Opts {
    let mut builder = OptsBuilder::default()
        .user(options.user.clone())
        .pass(options.password.clone().map(|password| password.0))
        .db_name(Some(options.database.clone()))
        .prefer_socket(false)
        .client_found_rows(true)
        .stmt_cache_size(0)
        .tcp_nodelay(true)
        // We read it ourselves, so that a new connection takes one trip less.
        .max_allowed_packet(Some(1 << 30))
        .wait_timeout(Some(28_800));
    builder = match &options.address {
        Address::Tcp(host, port) => builder.ip_or_hostname(host.clone()).tcp_port(*port),
        Address::Unix(path) => builder.socket(Some(path.to_string_lossy())),
    };
    if tls != Tls::Off {
        let files = &options.tls_files;
        let trusting = tls != Tls::Verify || files.insecure;
        let mut ssl = SslOpts::default()
            .with_danger_accept_invalid_certs(trusting)
            .with_danger_skip_domain_validation(trusting);
        if let Some(file) = &files.ca_file {
            ssl = ssl.with_root_certs(vec![file.clone().into()]);
        }
        if let Some(name) = &files.server_name {
            ssl = ssl.with_danger_tls_hostname_override(Some(name.clone()));
        }
        if let Ok(Some((cert, key))) = files.identity() {
            let identity = ClientIdentity::new(cert.to_owned().into(), key.to_owned().into());
            ssl = ssl.with_client_identity(Some(identity));
        }
        builder = builder.ssl_opts(ssl);
    }
    builder.into()
}

/// The message for an error, without the data.
fn describe(error: &Error) -> String {
    match error {
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Driver(DriverError::ConnectionClosed) => "the server closed the connection".into(),
        _ => error.to_string(),
    }
}

impl Columns for Row {
    fn int(&self, at: usize) -> Result<i64, String> {
        match self.bytes(at)? {
            [] => Ok(0),
            digits => std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| format!("column {at} holds no number")),
        }
    }

    fn bytes(&self, at: usize) -> Result<&[u8], String> {
        match self.as_ref(at) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(Value::NULL) => Ok(&[]),
            Some(_) => Err(format!("column {at} holds no bytes")),
            None => Err(format!("there is no column {at}")),
        }
    }

    fn is_null(&self, at: usize) -> bool {
        matches!(self.as_ref(at), None | Some(Value::NULL))
    }
}
