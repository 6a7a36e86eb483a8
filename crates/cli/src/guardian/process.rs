//! The guardian's handle of a mount process.
//!
//! What must stay true: a mount process counts as ended only when all its messages have been
//! received.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, mpsc::Sender},
    thread,
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, Signal, WaitStatus, kill_process},
};

use super::{
    event::Event,
    program::Program,
    wire::{self, Message},
};

/// One mount process.
#[derive(Debug)]
pub(super) struct MountProcess {
    pub(super) number: u64,
    pub(super) program: Arc<Program>,
    pub(super) pid: Pid,
    channel: Arc<OwnedFd>,
    /// It said that it is ready.
    pub(super) serves: bool,
    /// Why it ends, and whether that is an engine that cannot be reached.
    pub(super) message: Option<(String, bool)>,
    pub(super) closed: bool,
    /// It was asked to end.
    pub(super) asked_to_end: bool,
    pub(super) status: Option<WaitStatus>,
    /// How often it was seen dead and could not be waited for.
    stuck: u8,
}

impl MountProcess {
    /// Starts one and sends it the message `first`. Its own messages come as events under its
    /// `number`.
    pub(super) fn start(
        number: u64,
        program: &Arc<Program>,
        (first, fds): (&Message, &[BorrowedFd<'_>]),
        tell: &Sender<Event>,
    ) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        wire::send(&ours, first, fds)?;
        let child = program.start(theirs)?;
        let channel = Arc::new(ours);
        let (reader, tell) = (Arc::clone(&channel), tell.clone());
        thread::Builder::new().name("sluice-receive".into()).spawn(move || {
            while let Ok(Some((message, fds))) = wire::receive(&*reader) {
                if tell.send(Event::Message(number, message, fds)).is_err() {
                    return;
                }
            }
            let _ = tell.send(Event::Closed(number));
        })?;
        Ok(Self {
            number,
            program: Arc::clone(program),
            pid: Pid::from_child(&child),
            channel,
            serves: false,
            message: None,
            closed: false,
            asked_to_end: false,
            status: None,
            stuck: 0,
        })
    }

    /// Tells it something. That it is gone is told otherwise.
    pub(super) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        if let Err(why) = wire::send(self.channel.as_fd(), message, fds) {
            tracing::debug!("the mount process cannot be told: {why}");
        }
    }

    /// Asks it to unmount. Asked again, it cuts the mount off.
    pub(super) fn ask_to_end(&mut self) {
        self.asked_to_end = true;
        self.send(&Message::End, &[]);
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Whether it has ended, and nothing of it is still to come.
    pub(super) fn has_ended(&self) -> bool {
        self.stuck > 1 || self.closed && self.status.is_some()
    }

    /// Looks whether it is dead and cannot end: one of its threads waits, in the kernel, for a page
    /// of the mount that only a successor can bring.
    pub(super) fn look(&mut self) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let dead = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
        self.stuck = if dead && self.status.is_none() { self.stuck.saturating_add(1) } else { 0 };
    }

    /// Its exit code, if it was not killed.
    pub(super) fn code(&self) -> Option<u8> {
        self.status.and_then(WaitStatus::exit_status).and_then(|code| u8::try_from(code).ok())
    }

    /// How it ended.
    pub(super) fn how(&self) -> String {
        let status = self.status;
        let how = match status.and_then(WaitStatus::terminating_signal) {
            Some(signal) => format!("signal {signal}"),
            None => match status.and_then(WaitStatus::exit_status) {
                Some(code) => format!("exit code {code}"),
                None => "killed, and held up by the mount itself".to_owned(),
            },
        };
        match &self.message {
            Some((message, _)) => format!("{how}: {}", message.trim_start_matches("sluice: ")),
            None => how,
        }
    }
}
