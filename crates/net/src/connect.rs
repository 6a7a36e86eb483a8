//! How to connect to a server.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

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
