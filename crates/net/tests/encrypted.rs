//! Connections over TLS, to a server of the test's own.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use sluice_net::{
    Address, Connection, Deadline, Kind, Limits, Pool, Stream, Tls, describe,
    tls::{Files, Verify, rejected_certificate},
};
use sluice_testkit::server::certificates;
use tempfile::TempDir;

/// A deadline that no test reaches.
const LONG: Duration = Duration::from_mins(1);
/// A deadline that passes.
const SHORT: Duration = Duration::from_millis(50);

/// What the server does with a connection, encrypted or not yet.
type Serve = fn(TcpStream, &Arc<ServerConfig>) -> io::Result<()>;

/// A server on a thread, with a certificate for `localhost`.
struct Server {
    address: Address,
    dir: TempDir,
    /// Connections it has taken.
    taken: Arc<AtomicUsize>,
}

impl Server {
    fn start(serve: Serve) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        certificates::sign(dir.path(), "DNS:localhost").expect("openssl is installed");
        let chain = CertificateDer::pem_file_iter(dir.path().join("server.pem")).expect("a file");
        let key = PrivateKeyDer::from_pem_file(dir.path().join("server.key")).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain.collect::<Result<_, _>>().expect("a certificate"), key);
        let config = Arc::new(config.expect("they belong together"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let config = config.clone();
                // What a client does not like ends its connection only.
                thread::spawn(move || serve(socket, &config));
            }
        });
        Self { address: Address::Tcp("127.0.0.1".into(), port), dir, taken }
    }

    fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Connects, and encrypts with a server of that name.
    fn connect(&self, verify: Verify, authority: &Path, host: &str, time: Duration) -> io::Result<Stream> {
        let until = Instant::now() + time;
        let files = Files { ca_file: Some(authority.into()), ..Files::default() };
        let tls = Tls::new(verify, &files).expect("certificates");
        let mut stream = Stream::connect(&self.address, until)?;
        stream.encrypt(&tls, host, until)?;
        Ok(stream)
    }
}

/// Gives back what it gets, until the client goes.
fn echo(socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, socket);
    let mut bytes = vec![0; 4096];
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&bytes[..length])?;
        // It says farewell, as servers do that close idle connections.
        if &bytes[..length] == b"bye" {
            stream.conn.send_close_notify();
            return stream.flush();
        }
    }
}

/// Takes the connection and never says a word.
fn say_nothing(mut socket: TcpStream, _: &Arc<ServerConfig>) -> io::Result<()> {
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

/// Encrypts, and answers nothing.
fn answer_nothing(socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
    io::copy(&mut StreamOwned::new(session, socket), &mut io::sink()).map(drop)
}

/// What the server says to `request`, which is as long.
fn ask(stream: &mut Stream, request: &[u8], time: Duration) -> io::Result<Vec<u8>> {
    stream.send(request, Kind::Read, Deadline::after(time))?;
    while stream.input.len() < request.len() {
        stream.fill(Deadline::after(time))?;
    }
    Ok(stream.input.split().to_vec())
}

/// Why the certificate was not accepted.
fn rejected(connected: io::Result<Stream>) -> String {
    let error = connected.err().expect("the certificate does not prove what was asked for");
    let reason = rejected_certificate(&error);
    let reason = reason.unwrap_or_else(|| panic!("not about the certificate: {error}"));
    assert_eq!(describe(&error), format!("its certificate is not to be trusted: {reason}"));
    reason
}

#[test]
fn a_server_that_a_trusted_authority_signed_is_talked_to() {
    let server = Server::start(echo);
    let mut stream =
        server.connect(Verify::Host, &server.authority(), "localhost", LONG).expect("it proves all");
    assert_eq!(ask(&mut stream, b"ping", LONG).expect("an answer"), b"ping");
    // Many encrypted pieces, while the server answers before it has all.
    let long: Vec<u8> = (0..4 << 20).map(|at| at as u8).collect();
    assert!(ask(&mut stream, &long, LONG).expect("an answer") == long, "what came back is not what was sent");
}

#[test]
fn a_server_of_another_authority_is_refused() {
    let server = Server::start(echo);
    let other = tempfile::tempdir().expect("a directory");
    certificates::sign(other.path(), "DNS:localhost").expect("openssl is installed");
    let other = other.path().join("ca.pem");
    for verify in [Verify::Host, Verify::Authority] {
        let reason = rejected(server.connect(verify, &other, "localhost", LONG));
        assert_eq!(reason, "no trusted authority signed it", "{verify:?}");
    }
    server.connect(Verify::Nothing, &other, "localhost", LONG).expect("any certificate will do");
}

#[test]
fn a_server_of_another_name_is_refused() {
    let server = Server::start(echo);
    for host in ["other.example", "127.0.0.1"] {
        let reason = rejected(server.connect(Verify::Host, &server.authority(), host, LONG));
        assert!(reason.contains("not valid for"), "{reason}");
        assert!(reason.contains(host) && reason.contains("localhost"), "which names there are: {reason}");
        server.connect(Verify::Authority, &server.authority(), host, LONG).expect("no name was asked for");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
    let silent = Server::start(say_nothing);
    let begun = Instant::now();
    let error = silent.connect(Verify::Host, &silent.authority(), "localhost", SHORT).err();
    assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::TimedOut), "in the handshake");
    let server = Server::start(answer_nothing);
    let mut stream =
        server.connect(Verify::Host, &server.authority(), "localhost", LONG).expect("it proves all");
    let error = ask(&mut stream, b"ping", SHORT).err();
    assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::TimedOut), "behind the handshake");
    assert!((SHORT * 2..LONG).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// A connection as engines keep it.
struct Kept {
    stream: Stream,
    sound: bool,
}

impl Connection for Kept {
    fn is_sound(&self) -> bool {
        self.sound
    }

    fn is_stale(&self) -> bool {
        self.stream.is_stale()
    }
}

/// Asks over a connection of the pool.
fn exchange(pool: &Pool<Kept>, server: &Server, request: &[u8], time: Duration) -> io::Result<Vec<u8>> {
    let connect = || {
        let stream = server.connect(Verify::Host, &server.authority(), "localhost", LONG)?;
        Ok(Kept { stream, sound: true })
    };
    pool.with(connect, io::Error::other, |kept| {
        kept.sound = false;
        let answer = ask(&mut kept.stream, request, time)?;
        kept.sound = true;
        Ok(answer)
    })?
}

#[test]
fn a_connection_that_the_server_closed_is_not_handed_out_again() {
    let server = Server::start(echo);
    let pool = Pool::new(Limits::new(1, 1), LONG);
    let made = |request: &[u8]| {
        assert_eq!(exchange(&pool, &server, request, LONG).expect("an answer"), request);
        server.taken.load(Ordering::SeqCst)
    };
    assert_eq!([made(b"one"), made(b"two")], [1, 1], "a good one serves again");
    assert_eq!(made(b"bye"), 1);
    // Its farewell may still be on the way: a pool learns of it from the socket.
    let until = Instant::now() + LONG;
    loop {
        match exchange(&pool, &server, b"ping", LONG) {
            Ok(answer) => break assert_eq!(answer, b"ping"),
            Err(error) => assert!(Instant::now() < until, "no new connection was made: {error}"),
        }
    }
    assert_eq!(server.taken.load(Ordering::SeqCst), 2);
    assert_eq!(made(b"four"), 2);
}

#[test]
fn a_connection_on_which_an_answer_is_missing_is_not_handed_out_again() {
    let server = Server::start(answer_nothing);
    let pool = Pool::new(Limits::new(1, 1), LONG);
    for taken in 1..4 {
        let error = exchange(&pool, &server, b"ping", SHORT).err();
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        // The answer may come yet: it would be taken for that of the next request.
        assert_eq!(server.taken.load(Ordering::SeqCst), taken);
    }
}
