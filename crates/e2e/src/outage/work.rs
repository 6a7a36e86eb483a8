//! Threads that work in mounts, and know the right result of each of their calls.
//!
//! What must stay true: an outage excuses no error. A call that fails, or returns a wrong result,
//! ends the test. A call that never returns is detected.

use super::writer::{Model, Writer};
use crate::rig::until;
use anyhow::{Context, bail, ensure};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long work may take to continue after a fault, and to be affected by one.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

/// Writers at work.
pub(super) struct Crew {
    progress: Arc<Progress>,
    threads: Vec<JoinHandle<anyhow::Result<Model>>>,
}

/// The result of the crew's work.
pub(super) struct Outcome {
    /// What each writer knows of its names.
    pub(super) models: Vec<Model>,
    /// Calls that were answered.
    pub(super) done: u64,
    /// The longest step.
    pub(super) longest: Duration,
}

struct Progress {
    begin: Instant,
    done: AtomicU64,
    stop: AtomicBool,
    /// By writer: when its step under way began, milliseconds from `begin`.
    since: Vec<AtomicU64>,
    longest: AtomicU64,
}

impl Progress {
    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }
}

impl Crew {
    /// Sets `writers` threads to work, the first in the first of `points`, and so on.
    ///
    /// # Errors
    /// When the directories that they share cannot be made.
    pub(super) fn start(points: &[PathBuf], writers: usize, seed: u64) -> anyhow::Result<Self> {
        Writer::prepare(points.first().context("no mount")?)?;
        let progress = Arc::new(Progress {
            begin: Instant::now(),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            since: (0..writers).map(|_| AtomicU64::new(0)).collect(),
            longest: AtomicU64::new(0),
        });
        let threads = points.iter().cycle().take(writers).enumerate().map(|(number, point)| {
            let (progress, writer) = (Arc::clone(&progress), Writer::new(point, number, seed));
            thread::spawn(move || work(writer, number, &progress))
        });
        let threads = threads.collect();
        Ok(Self { progress, threads })
    }

    /// Waits until `steps` more steps were done, by any writers.
    ///
    /// # Errors
    /// When a writer met a fault, or nothing goes on.
    pub(super) fn more(&mut self, steps: u64) -> anyhow::Result<()> {
        let wanted = self.progress.done.load(Ordering::SeqCst) + steps;
        let progress = Arc::clone(&self.progress);
        self.until("work to go on", || progress.done.load(Ordering::SeqCst) >= wanted)
    }

    /// Waits until every writer has waited `delay` for one answer.
    ///
    /// # Errors
    /// When a writer met a fault, or work goes on as if nothing were broken.
    pub(super) fn stuck(&mut self, delay: Duration) -> anyhow::Result<()> {
        self.stuck_at(0, 1, delay)
    }

    /// Waits until the writers in mount `point` of `points` have waited `delay` for one answer.
    ///
    /// # Errors
    /// When a writer met a fault, or work goes on there as if nothing were broken.
    pub(super) fn stuck_at(&mut self, point: usize, points: usize, delay: Duration) -> anyhow::Result<()> {
        let (progress, delay) = (Arc::clone(&self.progress), delay.as_millis() as u64);
        self.until("writers to wait", || {
            let mut there = progress.since.iter().skip(point).step_by(points);
            there.all(|since| progress.now() > since.load(Ordering::SeqCst) + delay)
        })
    }

    /// Waits until every writer has begun another step.
    ///
    /// # Errors
    /// When a writer met a fault, or one does not go on.
    pub(super) fn everybody(&mut self) -> anyhow::Result<()> {
        let (progress, now) = (Arc::clone(&self.progress), self.progress.now());
        self.until("everybody to go on", || {
            progress.since.iter().all(|since| since.load(Ordering::SeqCst) > now)
        })
    }

    /// Waits for `condition` while all writers work.
    pub(super) fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
        let mut fell = None;
        let came = until(what, TIMEOUT, || {
            fell = self.threads.iter().position(JoinHandle::is_finished);
            fell.is_some() || condition()
        });
        if let Some(number) = fell {
            self.progress.stop.store(true, Ordering::SeqCst);
            match self.threads.swap_remove(number).join() {
                Ok(Err(why)) => return Err(why),
                _ => bail!("a writer ended without a reason"),
            }
        }
        Ok(came?)
    }

    /// Ends all writers after their current steps.
    ///
    /// # Errors
    /// What a writer met, or that one never comes back.
    pub(super) fn end(self) -> anyhow::Result<Outcome> {
        self.progress.stop.store(true, Ordering::SeqCst);
        until("the writers to end", TIMEOUT, || self.threads.iter().all(JoinHandle::is_finished))?;
        let mut models = Vec::new();
        for thread in self.threads {
            let Ok(model) = thread.join() else { bail!("a writer panicked") };
            models.push(model?);
        }
        let count = |number: &AtomicU64| number.load(Ordering::SeqCst);
        let longest = Duration::from_millis(count(&self.progress.longest));
        Ok(Outcome { models, done: count(&self.progress.done), longest })
    }
}

fn work(mut writer: Writer, number: usize, progress: &Progress) -> anyhow::Result<Model> {
    let since = progress.since.get(number).context("a writer without a place")?;
    for step in 0_u64.. {
        if progress.stop.load(Ordering::SeqCst) {
            break;
        }
        let begun = progress.now();
        since.store(begun, Ordering::SeqCst);
        writer.step(step).with_context(|| format!("writer {number}, step {step}"))?;
        progress.longest.fetch_max(progress.now() - begun, Ordering::SeqCst);
        progress.done.fetch_add(1, Ordering::SeqCst);
    }
    Ok(writer.model)
}

impl Outcome {
    /// Checks through a new mount that all files are there, and nothing else.
    ///
    /// # Errors
    /// What is missing, wrong or too much.
    pub(super) fn verify(&self, point: &std::path::Path) -> anyhow::Result<()> {
        ensure!(self.done > 0, "nothing was done");
        Model::verify(&self.models, point)
    }
}
