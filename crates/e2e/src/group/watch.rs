//! What must hold while something is broken, and afterwards.

use super::{
    cluster::{BUFFER, Cluster},
    readers::{Readers, Times},
};
use crate::rig::until;
use anyhow::{Context, ensure};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long reads may be slow after something changed.
const SLOW: Duration = Duration::from_secs(10);
/// The time over which the percentile is taken.
const WINDOW: Duration = Duration::from_secs(2);
/// How long reads have to stay fast then, at least.
const HOLD: Duration = Duration::from_secs(5);
/// What is fast in any case: two processors serve all of it, and other tests.
const FLOOR: Duration = Duration::from_millis(100);
/// Reads that a percentile needs.
const ENOUGH: usize = 100;
/// No read takes longer, whatever happens: a request to a member has a deadline of ten seconds, and
/// the object store is read then.
const LONGEST: Duration = Duration::from_secs(15);
/// Memory of a mount without blocks, MiB: its program and its connections.
const PROGRAM: u64 = 112;
/// Share of the usual use of the group that is wanted again after a fault.
const USED: f64 = 0.5;

/// Readers, and how fast they were when nothing was broken.
pub(super) struct Watch {
    readers: Readers,
    normal: Times,
    /// Answers of members for each read, when nothing was broken.
    usual: f64,
    /// The highest of each kind so far.
    longest: Duration,
    memory: u64,
}

impl Watch {
    /// Begins to read, and waits until the caches of the nodes are full.
    ///
    /// # Errors
    /// When a reader saw an error, or the group is not used.
    pub(super) fn start(cluster: &Cluster, seed: u64) -> anyhow::Result<Self> {
        for taker in &cluster.takers {
            super::readers::read_all(taker.point(), seed)?;
        }
        let points: Vec<PathBuf> = cluster.takers.iter().map(|taker| taker.point().to_owned()).collect();
        let readers = Readers::start(&points, seed)?;
        let none = Times { reads: 0, p99: Duration::ZERO, longest: Duration::ZERO };
        let mut watch = Self { readers, normal: none, usual: 0.0, longest: Duration::ZERO, memory: 0 };
        watch.wait(SLOW)?;
        let (from, gets) = (watch.readers.now(), cluster.gets()?);
        watch.wait(HOLD)?;
        let times = watch.times(from, watch.readers.now())?;
        watch.usual = (cluster.gets()? - gets) / times.reads as f64;
        println!("normal: {times:?}, {:.2} answers of members for each read", watch.usual);
        ensure!(watch.usual > 0.3, "the group is hardly used: {:.2}", watch.usual);
        Ok(watch)
    }

    /// Nobody saw an error yet.
    ///
    /// # Errors
    /// When a reader saw an error or a wrong byte.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.readers.check()
    }

    /// Notes how fast reads are now.
    ///
    /// # Errors
    /// When a reader saw an error.
    pub(super) fn before(&mut self) -> anyhow::Result<()> {
        let from = self.readers.now();
        self.wait(WINDOW)?;
        self.normal = self.times(from, from + WINDOW)?;
        Ok(())
    }

    /// What is as fast as before.
    fn limit(&self) -> Duration {
        (self.normal.p99 * 3).max(FLOOR)
    }

    /// Waits while all read, for the time that the percentiles need.
    fn wait(&mut self, time: Duration) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.until("time to pass", time * 2, || begin.elapsed() >= time)
    }

    fn times(&mut self, from: Duration, to: Duration) -> anyhow::Result<Times> {
        let times = self.readers.times(from, to)?.context("nobody reads")?;
        self.longest = self.longest.max(times.longest);
        ensure!(times.reads >= ENOUGH, "{} reads in {:?}", times.reads, to.saturating_sub(from));
        ensure!(times.longest <= LONGEST, "a read took {:?}", times.longest);
        Ok(times)
    }

    /// Changes something. Reads have to be fast again in time, and to stay so, and the group has to
    /// be used.
    ///
    /// # Errors
    /// When one of it is not so.
    pub(super) fn meets(
        &mut self,
        cluster: &mut Cluster,
        what: &str,
        change: impl FnOnce(&mut Cluster) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (begin, limit) = (self.readers.now(), self.limit());
        change(cluster).context(what.to_owned())?;
        let changed = self.readers.now();
        let mut worst = Duration::ZERO;
        let again = loop {
            self.wait(Duration::from_millis(100))?;
            // What is slower than the limit has been so for as long by then.
            let Some(from) = self.readers.now().checked_sub(WINDOW + limit).filter(|from| *from >= begin)
            else {
                continue;
            };
            let times = self.times(from, from + WINDOW);
            if let Ok(times) = &times {
                worst = worst.max(times.p99);
                if times.p99 <= limit {
                    break from;
                }
            }
            if from > changed + SLOW {
                let times = times.with_context(|| what.to_owned())?;
                anyhow::bail!("{what}: reads are still slow: {times:?}, before {:?}", self.normal);
            }
        };
        let gets = cluster.gets()?;
        let from = self.readers.now();
        self.wait(HOLD)?;
        let calm = self.times(from, from + HOLD).with_context(|| what.to_owned())?;
        let used = (cluster.gets()? - gets) / calm.reads as f64;
        let slow = self.times(begin, from).with_context(|| what.to_owned())?;
        println!(
            "  {what}: p99 {worst:.1?} at worst, fast after {:.1?}, then {:.1?}; longest {:.1?}; {used:.2} answers a read",
            again.saturating_sub(begin),
            calm.p99,
            slow.longest
        );
        ensure!(calm.p99 <= limit, "{what}: reads became slow again: {calm:?}, before {:?}", self.normal);
        ensure!(
            used >= self.usual * USED,
            "{what}: the group is hardly used: {used:.2}, before {:.2}",
            self.usual
        );
        Ok(())
    }

    /// Waits for a condition while all read.
    ///
    /// # Errors
    /// When it does not come, or a reader saw an error.
    pub(super) fn until(
        &mut self,
        what: &str,
        timeout: Duration,
        mut done: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let mut fell = None;
        until(what, timeout, || {
            fell = self.readers.check().err();
            fell.is_some() || done()
        })?;
        fell.map_or(Ok(()), Err)
    }

    /// Memory of all processes is in its budget.
    ///
    /// # Errors
    /// When one held more.
    pub(super) fn is_in_budget(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        for node in cluster.nodes.iter().chain(&cluster.takers).filter(|node| node.is_mounted()) {
            let held = node.most_memory()?;
            self.memory = self.memory.max(held);
            // Twice the buffer is what reads and writes may take together.
            let budget = PROGRAM + 2 * BUFFER;
            ensure!(held <= budget, "{} held {held} MiB of {budget}", node.point().display());
        }
        Ok(())
    }

    /// Ends the readers. What was seen.
    ///
    /// # Errors
    /// When a reader saw an error.
    pub(super) fn end(self) -> anyhow::Result<String> {
        let reads = self.readers.end()?;
        Ok(format!(
            "{reads} reads, all right, the longest took {:.1?}; no mount held more than {} MiB",
            self.longest, self.memory
        ))
    }
}
