//! The handshake of a connection: address, encryption, authentication, and settings of the session.
//!
//! What must stay true: the password is sent only to a server that passed the checks of `sslmode`.
//! Every connection uses READ COMMITTED, because the checks of a commit must see what other clients
//! committed while it waited.

use std::{io, time::Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
    },
    message::{backend::Message, frontend},
};
use sluice_meta::engine::EngineError;
use sluice_net::{Address, Kind, Stream, tls::rejected_certificate};

use super::{
    error::ServerError,
    options::{Options, TlsMode},
    wire::Wire,
};

/// Why there is no connection.
pub(super) enum NoConnection {
    /// The server says why.
    Server(ServerError),
    /// It cannot be reached, or its answer cannot be decoded.
    Io(io::Error),
    /// The URL or the server's certificate is wrong.
    Refused(String),
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        // What rustls found out about the server's certificate does not change by trying again.
        match rejected_certificate(&error) {
            Some(reason) => Self::Refused(format!(
                "the server's certificate is not to be trusted ({reason}); see sslmode and sslrootcert"
            )),
            None => Self::Io(error),
        }
    }
}

impl Options {
    /// Why there is no connection.
    pub(super) fn unreached(&self, error: &NoConnection) -> EngineError {
        match error {
            NoConnection::Server(error) => self.classify(error),
            NoConnection::Io(error) => self.volume.unavailable(error.to_string()),
            NoConnection::Refused(reason) => self.volume.refused(reason.as_str()),
        }
    }
}

/// Every statement of ours finds its rows by an index. The planner would sometimes rather read a
/// table that was small when it planned, and keep to that plan when the table has grown.
const SERVE: &str = "SET default_transaction_isolation='read committed';SET plan_cache_mode=force_generic_plan;\
     SET enable_seqscan=off;SET enable_hashjoin=off;SET enable_mergejoin=off;SET enable_bitmapscan=off;SET jit=off;\
     SET statement_timeout='25s';SET lock_timeout='10s';SET client_min_messages=error;\
     SET idle_in_transaction_session_timeout='30s';SET tcp_keepalives_idle=15;SET tcp_keepalives_interval=5;\
     SET tcp_keepalives_count=3;SET tcp_user_timeout='30s';SHOW transaction_read_only";

/// Connects to the first host that answers and accepts us.
pub(super) fn connect(options: &Options) -> Result<Wire, NoConnection> {
    let mut last = NoConnection::Io(io::ErrorKind::AddrNotAvailable.into());
    for host in &options.hosts {
        match handshake(options, host) {
            Ok(wire) => return Ok(wire),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn handshake(options: &Options, host: &Address) -> Result<Wire, NoConnection> {
    let until = Instant::now() + options.connect_timeout;
    let mut wire = Wire(Stream::connect(host, until)?);
    if let Address::Tcp(name, _) = host
        && options.tls.0 > TlsMode::Disable
    {
        encrypt(&mut wire, options, name, until)?;
    }
    let mut request = BytesMut::new();
    let notice = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let who = [("user", options.user.as_str()), ("database", &options.database), ("client_encoding", "UTF8")];
    let named = options.settings.iter().any(|(name, _)| name == "application_name");
    let name = (!named).then_some(("application_name", "sluice"));
    frontend::startup_message(who.into_iter().chain(name).chain(notice), &mut request)?;
    wire.send(&request, Kind::Read, until)?;
    authenticate(&mut wire, options, until)?;
    wire.answered(until)?.map_err(NoConnection::Server)?;
    let shown = wire.query(SERVE, Kind::Read, until)?.map_err(NoConnection::Server)?;
    if shown.contains("on") && options.writable == Some(true) {
        return Err(NoConnection::Io(io::Error::other("every server that answers is read-only")));
    }
    Ok(wire)
}

fn encrypt(wire: &mut Wire, options: &Options, name: &str, until: Instant) -> Result<(), NoConnection> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    wire.send(&request, Kind::Read, until)?;
    match wire.0.receive_byte(until)? {
        b'S' => {
            let tls = options.load_tls().map_err(NoConnection::Refused)?;
            Ok(wire.0.encrypt(&tls, name, until)?)
        }
        _ if options.tls.0 == TlsMode::Prefer => Ok(()),
        _ => Err(NoConnection::Refused(
            "the server does not encrypt connections; set ssl=on there, or sslmode=disable here".into(),
        )),
    }
}

fn authenticate(wire: &mut Wire, options: &Options, until: Instant) -> Result<(), NoConnection> {
    let password = || {
        let missing = "the server wants a password; put it into the URL or META_PASSWORD";
        options.password.as_deref().map(str::as_bytes).ok_or_else(|| NoConnection::Refused(missing.into()))
    };
    let mut scram = None;
    loop {
        let mut answer = BytesMut::new();
        match wire.receive(until)? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => frontend::password_message(password()?, &mut answer)?,
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(options.user.as_bytes(), password()?, body.salt());
                frontend::password_message(hash.as_bytes(), &mut answer)?;
            }
            Message::AuthenticationSasl(body) => {
                if !body.mechanisms().any(|mechanism| Ok(mechanism == SCRAM_SHA_256))? {
                    return Err(unknown_method());
                }
                let begun = ScramSha256::new(password()?, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut answer)?;
                scram = Some(begun);
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = scram.as_mut().ok_or_else(unknown_method)?;
                scram.update(body.data())?;
                frontend::sasl_response(scram.message(), &mut answer)?;
            }
            Message::AuthenticationSaslFinal(body) => {
                scram.as_mut().ok_or_else(unknown_method)?.finish(body.data())?;
            }
            Message::ErrorResponse(body) => return Err(NoConnection::Server(ServerError::read(&body))),
            Message::NoticeResponse(_) => {}
            _ => return Err(unknown_method()),
        }
        wire.send(&answer, Kind::Read, until)?;
    }
}

fn unknown_method() -> NoConnection {
    NoConnection::Refused(
        "the server asks for a kind of authentication that is not known here; use scram-sha-256, md5, password, \
         cert, peer or trust in its pg_hba.conf"
            .into(),
    )
}
