//! Requests an upgrade from the guardian of a mount.
//!
//! What must stay true: only the user who mounted, or root, may ask. No process sends its
//! environment to another user.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{net::sockopt::socket_peercred, process::geteuid};

use super::{
    program::{Call, own_executable},
    wire,
};

/// How long a caller may take to say what it wants.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a guardian may take to report the result of an upgrade: another mount process starts,
/// and the old one stores unsaved data.
const ANSWER: Duration = Duration::from_mins(5);
/// How long a guardian may take until it listens, after its mount is visible.
const LISTENS: Duration = Duration::from_secs(10);
/// Time between two attempts to listen or to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// The same after the address was in use for long.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of the longest request.
const LONGEST: u64 = 4 << 20;

/// A process that wants another program to serve.
#[derive(Debug)]
pub(super) struct Caller {
    stream: UnixStream,
    pub(super) executable: OwnedFd,
    pub(super) call: Call,
}

impl Caller {
    /// Sends it the result.
    pub(super) fn answer(&mut self, answer: &Result<(), String>) {
        let message = serde_json::to_vec(answer).map_err(io::Error::from);
        // It may have ended meanwhile. The log says the same.
        let _ = message.and_then(|message| self.stream.write_all(&message));
    }
}

/// The address of the guardian of a mount. It is an abstract socket, which needs no folder and ends
/// with its process. A device number is unique on a machine.
fn address(device: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("sluice-mount-{device}"))
}

/// Whether the other end belongs to a user who may mount for this user.
fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = socket_peercred(stream)?;
    Ok(peer.uid.is_root() || peer.uid == geteuid())
}

/// Calls `on_caller` for all who ask for the mount numbered `device`.
pub(super) fn listen(device: u32, on_caller: impl Fn(Caller) -> bool + Send + 'static) -> io::Result<()> {
    let address = address(device)?;
    thread::Builder::new().name("sluice-upgrade".into()).spawn(move || {
        let listener = match bind(&address) {
            Ok(listener) => listener,
            Err(why) => return tracing::warn!("the mount cannot be upgraded in place: {why}"),
        };
        for stream in listener.incoming() {
            let request = stream.and_then(|stream| {
                if is_trusted(&stream)? {
                    read_caller(stream)
                } else {
                    Err(io::ErrorKind::PermissionDenied.into())
                }
            });
            match request {
                Ok(caller) => {
                    if !on_caller(caller) {
                        return;
                    }
                }
                Err(why) => {
                    tracing::warn!("somebody asked to upgrade the mount and was not understood: {why}");
                    // What fails at once may fail again and again.
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    })?;
    Ok(())
}

/// Binds the address of the mount. The kernel reuses a device number as soon as it is free. The
/// guardian of the mount before may still be ending then, and keeps the address until it has ended.
fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    let begin = Instant::now();
    let mut pause = PAUSE;
    loop {
        match UnixListener::bind_addr(address) {
            Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
                if pause == PAUSE && begin.elapsed() > LISTENS {
                    tracing::warn!(
                        "another process has the name {address:?}; the mount cannot be upgraded in place until it ends"
                    );
                    pause = LONG_PAUSE;
                }
                thread::sleep(pause);
            }
            bound => return bound,
        }
    }
}

fn read_caller(stream: UnixStream) -> io::Result<Caller> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (_, fds) = wire::receive_bytes(stream.as_fd(), &mut [0])?;
    let executable = fds.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut text = Vec::new();
    (&stream).take(LONGEST).read_to_end(&mut text)?;
    Ok(Caller { call: serde_json::from_slice(&text)?, stream, executable })
}

/// Asks the guardian of mount `device` to continue with this program and this process' arguments.
/// `None` if there is no guardian; else the result.
pub(crate) fn ask(device: u32) -> Result<Option<Result<(), String>>> {
    let until = Instant::now() + LISTENS;
    loop {
        let Some(mut stream) = connect(device, until)? else { return Ok(None) };
        // A guardian of root would refuse another user, and root sends its environment to no other
        // user.
        if socket_peercred(&stream)?.uid != geteuid() {
            bail!("another user serves the mount: run this command as that user");
        }
        let mut message = Vec::new();
        let sent = converse(&mut stream, &mut message);
        let hung_up = match &sent {
            Ok(()) => message.is_empty(),
            Err(why) => matches!(why.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
        };
        // It may be the guardian of a mount that had this number before.
        if hung_up && Instant::now() < until {
            thread::sleep(PAUSE);
            continue;
        }
        if hung_up {
            bail!(
                "the guardian of the mount does not answer: it has ended, or was started by another \
                 user; only the user who mounted, or root, may ask it"
            );
        }
        sent.context("the guardian of the mount does not answer")?;
        let answer = serde_json::from_slice(&message);
        return Ok(Some(
            answer.context("the guardian of the mount did not say what came of it; its log may")?,
        ));
    }
}

/// Connects to the guardian of mount `device`; `None` if it has none. The guardian of a new mount
/// begins to listen shortly after the mount is visible.
fn connect(device: u32, until: Instant) -> Result<Option<UnixStream>> {
    let address = address(device)?;
    loop {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => return Ok(Some(stream)),
            Err(why) if matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                if Instant::now() >= until {
                    return Ok(None);
                }
                thread::sleep(PAUSE);
            }
            Err(why) => return Err(why).context("cannot reach the guardian of the mount"),
        }
    }
}

/// Sends the program and its arguments, and waits for the answer.
fn converse(stream: &mut UnixStream, message: &mut Vec<u8>) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER))?;
    let executable = own_executable()?;
    wire::send_bytes(stream.as_fd(), b"1", &[executable.as_fd()])?;
    stream.write_all(&serde_json::to_vec(&Call::own())?)?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(message).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_reached_though_an_ended_one_had_its_number() {
        // No mount of this machine has a number as high.
        let device = u32::MAX - std::process::id();
        let former = UnixListener::bind_addr(&address(device).expect("an address")).expect("bound");
        listen(device, |mut caller| {
            caller.answer(&Ok(()));
            true
        })
        .expect("it listens");
        let asked = thread::spawn(move || ask(device));
        // The former guardian hangs up on the first call, and ends at the second.
        drop(former.accept().expect("a caller"));
        drop(former.accept().expect("it tries again"));
        drop(former);
        assert_eq!(asked.join().expect("no panic").expect("reached"), Some(Ok(())));
    }
}
