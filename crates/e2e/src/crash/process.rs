//! Handles of the writer processes.

use crate::rig::until;
use anyhow::{Context, ensure};
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long writers may take to reach the point where the mount dies.
pub(super) const ROUND: Duration = Duration::from_mins(3);

/// A process that writes, and the thread that listens to it.
pub(super) struct Writer {
    process: Child,
    seed: u64,
    /// One more than the last durable step.
    pub(super) done: Arc<AtomicU64>,
    listener: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(folder: &Path, seed: u64) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["crash-writer", "--seed", &seed.to_string()])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let done = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&done);
        let lines = BufReader::new(process.stdout.take().context("no pipe")?).lines();
        let listener = thread::spawn(move || {
            for number in lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok()) {
                heard.store(number + 1, Ordering::SeqCst);
            }
        });
        Ok(Self { process, seed, done, listener })
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for its end; its seed and the number of its durable steps. What it said is added to
    /// `said`.
    pub(super) fn end(mut self, said: &mut String) -> anyhow::Result<(u64, u64)> {
        let mut stuck = false;
        if until("the writer to notice", ROUND, || self.has_ended()).is_err() {
            stuck = true;
            self.process.kill()?;
        }
        self.process.wait()?;
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(said)?;
        }
        ensure!(self.listener.join().is_ok(), "the listener died");
        ensure!(!stuck, "a writer hangs in the dead mount");
        Ok((self.seed, self.done.load(Ordering::SeqCst)))
    }
}
