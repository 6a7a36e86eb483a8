//! Where a server listens, and how to connect to it.

use std::{
    fmt, io,
    net::{TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a socket.
    Unix(PathBuf),
}

impl Address {
    /// Parses `host:port`, `host`, `[IPv6]:port`, `[IPv6]` or `IPv6`, without escapes. An empty
    /// host means this machine.
    ///
    /// # Errors
    /// A message, if the port is invalid.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let is_port = |(host, port): &(&str, &str)| {
            !port.ends_with(']') && (host.ends_with(']') || !host.contains(':'))
        };
        let (host, port) = match text.rsplit_once(':').filter(is_port) {
            Some((host, "")) => (host, default_port),
            Some((host, port)) => {
                (host, port.parse().map_err(|_| format!("\"{text}\" is no host and port"))?)
            }
            None => (text, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self::Tcp(if host.is_empty() { "127.0.0.1" } else { host }.into(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Connects to a Unix socket. It fails if the queue of the server is full: a blocking connect would
/// wait without a limit.
pub(crate) fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Connects to the first of the host's addresses that answers. Each gets a share of the time, so
/// that one that does not answer leaves time for the next.
pub(crate) fn connect_tcp(host: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    let mut addresses = (host, port).to_socket_addrs()?.collect::<Vec<_>>().into_iter();
    while let Some(address) = addresses.next() {
        let others = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let share = until.saturating_duration_since(Instant::now()) / others.saturating_add(1);
        match TcpStream::connect_timeout(&address, share.max(Duration::from_millis(1))) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                keep_alive(&socket)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes the kernel detect that the other end is gone. A connection that only receives would never
/// notice.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(sockopt::set_tcp_user_timeout(socket, 30_000)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for (text, written) in [
            ("h", "h:9"),
            ("h:", "h:9"),
            ("h:7", "h:7"),
            ("", "127.0.0.1:9"),
            (":7", "127.0.0.1:7"),
            ("[::1]", "[::1]:9"),
            ("::1", "[::1]:9"),
            ("[::1]:7", "[::1]:7"),
        ] {
            let address = Address::parse(text, 9).expect(text);
            assert_eq!(address.to_string(), written);
            assert_eq!(Address::parse(written, 1), Ok(address));
        }
        for wrong in ["h:x", "h:70000"] {
            assert!(Address::parse(wrong, 9).is_err(), "{wrong}");
        }
    }
}
