//! The mount process's end of the socket to its guardian.
//!
//! What must stay true: a mount process continues if its guardian dies.

use std::{
    env, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, Result, bail};
use rustix::{
    net::{SocketType, sockopt::socket_type},
    process::{Signal, set_parent_process_death_signal},
};
use sluice_fuse::Connection;

use super::wire::{self, Message};
use crate::fixed::Fixed;

/// Set for a mount process. Its standard input is the way to its guardian.
const SERVER: &str = "SLUICE_SERVER";

static SOCKET: OnceLock<Option<GuardianSocket>> = OnceLock::new();

/// The socket to the guardian.
#[derive(Debug)]
pub(crate) struct GuardianSocket {
    channel: OwnedFd,
}

/// Makes of `command` one that runs a mount process.
pub(super) fn mark(command: &mut Command) {
    command.env(SERVER, "1");
}

/// The socket to this process' guardian, if it is a mount process.
pub(crate) fn socket() -> Option<&'static GuardianSocket> {
    SOCKET
        .get_or_init(|| {
            env::var_os(SERVER)?;
            let stdin = rustix::stdio::stdin();
            // The variable may be inherited from somebody else's process.
            if socket_type(stdin).ok()? != SocketType::SEQPACKET {
                return None;
            }
            let channel = stdin.try_clone_to_owned().ok()?;
            // What it starts must not keep the way open.
            let null = std::fs::File::open("/dev/null").ok()?;
            rustix::stdio::dup2_stdin(&null).ok()?;
            // Until it serves it is nothing without its guardian.
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            // It was run by the number of a descriptor.
            let _ = rustix::thread::set_name(c"sluice");
            Some(GuardianSocket { channel })
        })
        .as_ref()
}

/// Tells the guardian, if there is one, why this process ends; whether that worked.
pub(crate) fn failed(message: &str, unreachable: bool) -> bool {
    socket().is_some_and(|socket| socket.send(&Message::Failed(message.to_owned(), unreachable), &[]).is_ok())
}

impl GuardianSocket {
    /// The next message and the descriptors that came with it; `None` when the guardian is gone.
    pub(crate) fn receive(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        wire::receive(&self.channel)
    }

    /// The next message; it is an error if none comes.
    pub(crate) fn wait(&self) -> Result<(Message, Vec<OwnedFd>)> {
        match self.receive().context("cannot receive from the guardian")? {
            Some(message) => Ok(message),
            None => bail!("the guardian has ended"),
        }
    }

    /// Says that it serves; from then on it goes on without its guardian if it must.
    pub(crate) fn ready(
        &self,
        connection: Connection,
        fixed: Fixed,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.send(&Message::Ready(connection, fixed), fds)?;
        let _ = set_parent_process_death_signal(None);
        Ok(())
    }

    /// Sends a message.
    pub(crate) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(self.channel.as_fd(), message, fds)
    }
}
