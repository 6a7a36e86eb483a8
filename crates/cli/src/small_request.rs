//! Small HTTP requests to monitoring services: a Consul, a Pushgateway.
//!
//! What must stay true: the connect has a deadline, and so does the whole exchange.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// The deadline of a connection, and of a request with its answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read.
const ANSWER: usize = 64 << 10;

/// Connects to `address` (`HOST:PORT`). Each step on the connection has a deadline.
///
/// # Errors
/// The name has no address, or no address answers.
pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    let about = || format!("cannot reach {address}");
    let mut last = None;
    for place in address.to_socket_addrs().with_context(about)? {
        match TcpStream::connect_timeout(&place, DEADLINE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| anyhow::anyhow!("the name has no address"), Into::into)).with_context(about)
}

/// Sends `body` to `path` with PUT; `headers` are whole lines with their ends.
///
/// # Errors
/// The connection's, or the server's answer if that is no success.
pub(crate) fn put(mut stream: TcpStream, host: &str, path: &str, headers: &str, body: &str) -> Result<()> {
    let until = Instant::now() + DEADLINE;
    let length = body.len();
    write!(stream, "PUT {path} HTTP/1.0\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")?;
    let answer = answer(stream, until).with_context(|| format!("{host} does not answer"))?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        let reason = answer.split_once("\r\n\r\n").map_or("", |(_, reason)| reason.trim());
        bail!("{host} answers {status} {reason}");
    }
    Ok(())
}

/// The first bytes of the answer, until the server closes the connection.
fn answer(mut stream: TcpStream, until: Instant) -> Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < ANSWER {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::Error::from(ErrorKind::TimedOut).into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answer)
}
