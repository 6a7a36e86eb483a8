//! The guardian: the process that `sluice mount` becomes. It starts a mount process for the volume.
//! It starts a successor if the mount process dies, or for an upgrade.
//!
//! What must stay true: it holds what a successor needs (the descriptors of the kernel's device and
//! of the journal). It never accesses the mount itself, because that access could wait for the
//! guardian.

mod deaths;
mod event;
mod process;
mod program;
mod socket;
mod upgrade;
mod wire;

use std::{
    io::Write,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, WaitOptions, wait};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_fuse::Connection;

use self::{
    deaths::{Deaths, Next},
    event::Event,
    process::MountProcess,
    program::{Call, Program, own_executable},
    upgrade::Caller,
};
pub(crate) use self::{
    socket::{GuardianSocket, failed, socket},
    upgrade::ask,
    wire::Message,
};
use crate::{
    background,
    fixed::Fixed,
    mount_process::{HANDED_OVER, VOLUME_GONE, steady},
};

/// How long a mount process may take to store unsaved data before another takes over.
const HAND_OVER: Duration = Duration::from_mins(1);

/// How long a successor may take until it serves. It waits for its engine for five minutes.
const BEGIN: Duration = Duration::from_mins(6);

/// Time between two checks whether a dead mount process cannot end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// What a successor needs.
struct Held {
    connection: Connection,
    fixed: Fixed,
    /// The descriptors of the journal and then of the kernel's device.
    fds: Vec<OwnedFd>,
}

impl Held {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }

    /// Whether there is still a mount to serve.
    fn is_mounted(&self) -> bool {
        self.fds.last().is_some_and(sluice_fuse::is_connected)
    }
}

/// Another program that is to take over.
struct Upgrade {
    process: MountProcess,
    caller: Caller,
    /// It is ready, and the running mount process was told to hand over.
    prepared: bool,
    until: Instant,
}

/// The mount process before this one, until the next one serves.
struct Former {
    program: Arc<Program>,
    caller: Caller,
}

struct Guardian<'a> {
    mountpoint: &'a Path,
    sender: Sender<Event>,
    processes: u64,
    /// `None` between two attempts.
    process: Option<MountProcess>,
    /// Takes over if the mount process dies.
    program: Arc<Program>,
    held: Option<Held>,
    upgrade: Option<Upgrade>,
    former: Option<Former>,
    deaths: Deaths,
    /// When to try again.
    again: Option<Instant>,
    /// When a successor that does not serve yet counts as hung.
    begins: Option<Instant>,
    /// A signal requested the end.
    ending: bool,
}

/// Lets child processes serve `mountpoint` with this process' command line, until it is unmounted.
pub(crate) fn run(mountpoint: &Path) -> Result<ExitCode> {
    steady();
    let (sender, events) = mpsc::channel();
    listen(sender.clone())?;
    let executable = own_executable().context("cannot open the file of this program")?;
    let program = Arc::new(Program::new(executable, Call::own()));
    let mut guardian = Guardian {
        mountpoint,
        sender,
        processes: 0,
        process: None,
        program,
        held: None,
        upgrade: None,
        former: None,
        deaths: Deaths::default(),
        again: None,
        begins: None,
        ending: false,
    };
    guardian.process = Some(guardian.start(&Arc::clone(&guardian.program), &Message::Mount, &[])?);
    loop {
        let event = guardian.next(&events)?;
        if let Some(code) = guardian.handle(event)? {
            return Ok(code);
        }
    }
}

fn listen(sender: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD]).context("cannot listen to signals")?;
    thread::Builder::new().name("sluice-signals".into()).spawn(move || {
        for signal in signals.forever() {
            // A hang-up of the terminal has no effect on it.
            if signal != SIGHUP && sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Prints the last message of a mount process in its place.
fn pass_on(message: &str) {
    let _ = writeln!(std::io::stderr(), "{message}");
    background::failed(message);
}

impl Guardian<'_> {
    fn next(&self, events: &Receiver<Event>) -> Result<Event> {
        let deadlines = self.upgrade.iter().map(|upgrade| upgrade.until).chain(self.again).chain(self.begins);
        let now = Instant::now();
        let deadline = deadlines.fold(now + CHECK_INTERVAL, Instant::min);
        let event = events.recv_timeout(deadline.saturating_duration_since(now));
        match event {
            Err(RecvTimeoutError::Timeout) => Ok(Event::Late),
            event => event.context("no thread listens any more"),
        }
    }

    fn start(
        &mut self,
        program: &Arc<Program>,
        first: &Message,
        fds: &[BorrowedFd<'_>],
    ) -> Result<MountProcess> {
        self.processes += 1;
        MountProcess::start(self.processes, program, (first, fds), &self.sender)
            .context("cannot start a process that serves")
    }

    /// Handles one event. Returns an exit code after the last one.
    fn handle(&mut self, event: Event) -> Result<Option<ExitCode>> {
        match event {
            Event::Signal(SIGCHLD) => self.reap(),
            Event::Signal(_) => return Ok(self.end()),
            Event::Message(number, message, fds) => self.receive(number, message, fds),
            Event::Closed(number) => {
                let upgrade = self.upgrade.as_mut().map(|upgrade| &mut upgrade.process);
                for process in self.process.iter_mut().chain(upgrade) {
                    process.closed |= process.number == number;
                }
            }
            Event::Caller(caller) => self.begin_upgrade(caller),
            Event::Late => self.late(),
        }
        if self.upgrade.as_ref().is_some_and(|upgrade| upgrade.process.has_ended()) {
            self.give_up_upgrade("");
        }
        match self.process.take_if(|process| process.has_ended()) {
            Some(process) => self.ended(&process),
            None => Ok(None),
        }
    }

    /// Reaps children that ended: mount processes, and any process if this is the first process of
    /// a container.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let upgrade = self.upgrade.as_mut().map(|upgrade| &mut upgrade.process);
            for process in self.process.iter_mut().chain(upgrade).filter(|process| process.pid == pid) {
                process.status = Some(status);
            }
        }
    }

    /// A signal requests the end.
    fn end(&mut self) -> Option<ExitCode> {
        let again = std::mem::replace(&mut self.ending, true);
        self.give_up_upgrade("the mount is told to end");
        match &mut self.process {
            Some(process) if process.serves => process.ask_to_end(),
            Some(process) if self.held.is_some() && again => {
                tracing::warn!(
                    "a second signal: the mount is taken away though its mount process is not back"
                );
                process.signal(Signal::KILL);
                return Some(self.leave());
            }
            // It learns of that when it serves.
            Some(_) if self.held.is_some() => {
                tracing::info!(
                    "the mount ends once its mount process is back; a second signal ends it at once"
                );
            }
            // It has not mounted yet, or has just mounted and may have received the signal too. A
            // second signal would end it at once.
            Some(process) if !again => process.ask_to_end(),
            Some(process) => process.signal(Signal::TERM),
            None => return Some(self.leave()),
        }
        None
    }

    /// Unmounts although no mount process is left.
    fn leave(&self) -> ExitCode {
        if let Err(why) = sluice_fuse::unmount(self.mountpoint, true) {
            tracing::error!("{why}");
        }
        ExitCode::FAILURE
    }

    fn receive(&mut self, number: u64, message: Message, fds: Vec<OwnedFd>) {
        if let Some(upgrade) = self.upgrade.as_mut().filter(|upgrade| upgrade.process.number == number) {
            match message {
                Message::Prepared => {
                    upgrade.prepared = true;
                    upgrade.until = Instant::now() + HAND_OVER + Duration::from_secs(15);
                    if let Some(process) = &self.process {
                        process.send(&Message::HandOver(HAND_OVER.as_secs()), &[]);
                    }
                }
                Message::Failed(message, unreachable) => {
                    upgrade.process.message = Some((message, unreachable));
                }
                _ => {}
            }
            return;
        }
        let Some(process) = self.process.as_mut().filter(|process| process.number == number) else { return };
        match message {
            Message::Ready(connection, fixed) => {
                process.serves = true;
                self.begins = None;
                let first = self.held.is_none();
                self.held = Some(Held { connection, fixed, fds });
                self.deaths.serves();
                self.ready(first);
            }
            Message::Failed(message, unreachable) => process.message = Some((message, unreachable)),
            Message::Refused(why) => self.give_up_upgrade(&why),
            _ => {}
        }
    }

    /// The mount process serves.
    fn ready(&mut self, first: bool) {
        if let Some(mut former) = self.former.take() {
            tracing::info!("{} is served by another program now", self.mountpoint.display());
            former.caller.answer(&Ok(()));
        }
        if first {
            let device = self.held.as_ref().map_or(0, |held| held.connection.device());
            let sender = self.sender.clone();
            let on_caller = move |caller| sender.send(Event::Caller(caller)).is_ok();
            if let Err(why) = upgrade::listen(device, on_caller) {
                tracing::warn!("the mount cannot be upgraded in place: {why}");
            }
            background::ready();
        }
        // A mount process that was asked to end before it reported that it serves knows of that.
        if self.ending
            && let Some(process) = self.process.as_mut().filter(|process| !process.asked_to_end)
        {
            process.ask_to_end();
        }
    }

    fn begin_upgrade(&mut self, mut caller: Caller) {
        // This mount is gone. The caller means a newer one with the same number, and tries again.
        if self.held.as_ref().is_some_and(|held| !held.is_mounted()) {
            return;
        }
        let idle = self.upgrade.is_none() && self.former.is_none() && !self.ending;
        let Some(held) = self.held.as_ref().filter(|_| idle && self.process.is_some()) else {
            return caller.answer(&Err("the mount is about to change already; try again".into()));
        };
        if held.connection.uses_io_uring() {
            return caller.answer(&Err(
                "it is mounted with -o io_uring, and requests in a ring cannot be handed to \
                                       another process; unmount it, and mount it with the new program"
                    .into(),
            ));
        }
        let taken = caller.executable.try_clone();
        let call = std::mem::take(&mut caller.call);
        let message = Message::Prepare(held.fixed.clone());
        let fds = held.fds.first().and_then(|journal| journal.try_clone().ok());
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let started = taken
            .map_err(anyhow::Error::from)
            .and_then(|executable| self.start(&Arc::new(Program::new(executable, call)), &message, &fds));
        match started {
            Ok(process) => {
                let until = Instant::now() + background::timeout();
                self.upgrade = Some(Upgrade { process, caller, prepared: false, until });
            }
            Err(why) => caller.answer(&Err(format!("{why:#}"))),
        }
    }

    /// The running mount process continues.
    fn give_up_upgrade(&mut self, why: &str) {
        let Some(mut upgrade) = self.upgrade.take() else { return };
        upgrade.process.signal(Signal::KILL);
        let message = upgrade
            .process
            .message
            .take()
            .map(|(message, _)| message.trim_start_matches("sluice: ").to_owned());
        let why = match message {
            Some(message) => message,
            None if why.is_empty() => format!("the new mount process ended ({})", upgrade.process.how()),
            None => why.to_owned(),
        };
        tracing::warn!("{} is not upgraded: {why}", self.mountpoint.display());
        upgrade.caller.answer(&Err(why));
    }

    fn late(&mut self) {
        self.reap();
        let mounted = self.held.as_ref().is_some_and(Held::is_mounted);
        if let Some(process) = self.process.as_mut().filter(|_| mounted) {
            process.look();
        }
        let now = Instant::now();
        if self.begins.take_if(|begins| *begins <= now).is_some()
            && let Some(process) = &self.process
        {
            tracing::error!("a successor does not serve after {BEGIN:?}: it is ended");
            process.signal(Signal::KILL);
        }
        if self.again.take_if(|again| *again <= now).is_some() {
            self.succeed();
        }
        if let Some(upgrade) = self.upgrade.as_ref().filter(|upgrade| upgrade.until <= now) {
            let why = if upgrade.prepared {
                "the mount process did not hand over"
            } else {
                "the new mount process was not ready"
            };
            self.give_up_upgrade(&format!("{why} in time"));
        }
    }

    /// The mount process has ended.
    fn ended(&mut self, process: &MountProcess) -> Result<Option<ExitCode>> {
        self.begins = None;
        let (code, how) = (process.code(), process.how());
        let Some(held) = &self.held else {
            let Some((message, _)) = &process.message else {
                bail!("the process that serves ended before it mounted ({how})")
            };
            pass_on(message);
            return Ok(Some(ExitCode::from(code.unwrap_or(1))));
        };
        let gone = !held.is_mounted();
        if gone || process.serves && matches!(code, Some(0 | VOLUME_GONE)) {
            if let Some((message, _)) = &process.message {
                pass_on(message);
            } else if code.is_none() {
                tracing::error!("the process that served {} died ({how})", self.mountpoint.display());
            }
            self.give_up_upgrade("the mount has ended");
            return Ok(Some(ExitCode::from(code.unwrap_or(1))));
        }
        let handed_over = process.serves && code == Some(HANDED_OVER);
        if let Some(upgrade) = self.upgrade.take_if(|upgrade| upgrade.prepared) {
            if !handed_over {
                tracing::error!(
                    "the mount process died while it handed over ({how}): what was not stored is lost"
                );
            }
            self.promote(upgrade);
            return Ok(None);
        }
        if let Some(mut former) = self.former.take() {
            former
                .caller
                .answer(&Err(format!("the new mount process ended ({how}); the former program goes on")));
            self.program = former.program;
        }
        self.give_up_upgrade("the mount process died meanwhile; try again");
        if self.ending && !handed_over {
            tracing::error!("the process that served {} died ({how})", self.mountpoint.display());
            return Ok(Some(self.leave()));
        }
        let next = match &process.message {
            _ if handed_over => Next::Start,
            Some((_, true)) if !process.serves => self.deaths.not_reached(Instant::now()),
            _ => self.deaths.died(Instant::now()),
        };
        let what = if process.serves { "died" } else { "could not begin" };
        let point = self.mountpoint.display();
        match next {
            Next::Start => {
                tracing::error!("the process that serves {point} {what} ({how}); another goes on");
                self.succeed();
            }
            Next::Wait(pause) => {
                tracing::error!("the process that serves {point} {what} ({how}); tried again in {pause:?}");
                self.again = Some(Instant::now() + pause);
            }
            Next::GiveUp => bail!(
                "the process that serves {point} {what} again and again, the last time by {how}; the mount answers \
                 with errors until it is unmounted or mounted anew"
            ),
        }
        Ok(None)
    }

    /// Starts a successor.
    fn succeed(&mut self) {
        let held = self.held.take();
        // Nobody can answer what was in the rings of the dead process. So the connection ends, and
        // with it each wait for such an answer. A new mount replaces the dead one.
        let held = held.filter(|held| {
            let rings = held.connection.uses_io_uring();
            if rings && let Err(why) = held.connection.abort() {
                tracing::warn!(
                    "{} ends when the last process has let go of it: {why}",
                    self.mountpoint.display()
                );
            }
            !rings
        });
        let message = held.as_ref().map_or(Message::Mount, |held| Message::Resume(held.connection.clone()));
        let fds = held.as_ref().map(Held::fds).unwrap_or_default();
        match self.start(&Arc::clone(&self.program), &message, &fds) {
            Ok(process) => {
                self.process = Some(process);
                self.begins = Some(Instant::now() + BEGIN);
            }
            Err(why) => {
                tracing::error!("{why:#}; tried again in a second");
                self.again = Some(Instant::now() + Duration::from_secs(1));
            }
        }
        drop(fds);
        self.held = held;
    }

    /// The other program takes over.
    fn promote(&mut self, upgrade: Upgrade) {
        let Some(held) = &self.held else { return };
        upgrade.process.send(&Message::Resume(held.connection.clone()), &held.fds());
        let program = std::mem::replace(&mut self.program, Arc::clone(&upgrade.process.program));
        self.former = Some(Former { program, caller: upgrade.caller });
        self.process = Some(upgrade.process);
        self.begins = Some(Instant::now() + BEGIN);
    }
}
