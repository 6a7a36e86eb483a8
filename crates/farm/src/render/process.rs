//! Processes of the farm. Each reads commands as lines, and answers each with one line.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Serialize, de::DeserializeOwned};

/// A process of this program. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program with other arguments.
    pub(crate) fn start(args: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("its input")?;
        let answers = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, orders, answers })
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<()> {
        writeln!(self.orders, "{order}")?;
        Ok(self.orders.flush()?)
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "a process of the farm has ended");
        serde_json::from_str(&line).with_context(|| format!("not an answer: {line}"))
    }

    pub(crate) fn ask<T: DeserializeOwned>(&mut self, order: &str) -> Result<T> {
        self.tell(order)?;
        self.hear()
    }

    /// The processor time that it took.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name may hold anything but ends at the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 1000 / rustix::param::clock_ticks_per_second()))
    }

    /// Has it end by itself.
    pub(crate) fn end(mut self) -> Result<()> {
        self.tell("end")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a process of the farm failed: {status}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to the process that started this one.
pub(crate) fn say(answer: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

/// Does what the process that started this one says, until it says `end` or has ended.
pub(crate) fn obey(mut order: impl FnMut(&str) -> Result<()>) -> Result<()> {
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        order(&line)?;
    }
    Ok(())
}

/// A number of this process from `/proc/self/status`, as `VmHWM` in KiB.
pub(crate) fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
