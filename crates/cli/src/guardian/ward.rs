//! The server's end: what its guardian asks, and what it is told.
//!
//! What must stay true: a server whose guardian died serves on.

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

use super::wire::{self, Word};
use crate::fixed::Fixed;

/// Set for a server. Its standard input is the way to its guardian.
const SERVER: &str = "SLUICE_SERVER";

static WARD: OnceLock<Option<Ward>> = OnceLock::new();

/// The way to the guardian.
#[derive(Debug)]
pub(crate) struct Ward {
    channel: OwnedFd,
}

/// Makes of `command` one that runs a server.
pub(super) fn mark(command: &mut Command) {
    command.env(SERVER, "1");
}

/// The way to this process' guardian, if it is a server.
pub(crate) fn ward() -> Option<&'static Ward> {
    WARD.get_or_init(|| {
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
        Some(Ward { channel })
    })
    .as_ref()
}

/// Tells the guardian, if there is one, why this process ends; whether that worked.
pub(crate) fn failed(message: &str, unreachable: bool) -> bool {
    ward().is_some_and(|ward| ward.say(&Word::Failed(message.to_owned(), unreachable), &[]).is_ok())
}

impl Ward {
    /// The next word and what came beside it; `None` when the guardian is gone.
    pub(crate) fn hear(&self) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
        wire::receive(&self.channel)
    }

    /// The next word, which must come.
    pub(crate) fn wait(&self) -> Result<(Word, Vec<OwnedFd>)> {
        match self.hear().context("cannot hear the guardian")? {
            Some(word) => Ok(word),
            None => bail!("the guardian has ended"),
        }
    }

    /// Says that it serves; from then on it goes on without its guardian if it must.
    pub(crate) fn ready(
        &self,
        connection: Connection,
        fixed: Fixed,
        beside: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.say(&Word::Ready(connection, fixed), beside)?;
        let _ = set_parent_process_death_signal(None);
        Ok(())
    }

    /// Says something.
    pub(crate) fn say(&self, word: &Word, beside: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(self.channel.as_fd(), word, beside)
    }
}
