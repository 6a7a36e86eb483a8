//! Progress of long work: a bar on a terminal, plain lines elsewhere, both on standard error.
//!
//! What must stay true: if the output is no terminal, it gets complete lines without control
//! characters, and at least one line. With `--quiet` there is neither.

use std::{
    fmt::Display,
    io::IsTerminal,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{output, sizes::human};

/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time between two pictures of the bar, so that its clock runs while nothing gets done.
const TICK: Duration = Duration::from_millis(200);

/// Counts what is done and shows it.
pub(crate) struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    /// Whether bytes are counted, and shown as sizes.
    sizes: bool,
    done: AtomicU64,
    start: Instant,
    /// Seconds after the start when the next plain line is due.
    next_line: AtomicU64,
}

impl Progress {
    /// Begins work on `total` things, or on an unknown number.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        Self::counting(what, total, false)
    }

    /// Begins work on bytes, `about` so many if that is known: a bar may end early, or pass it.
    pub(crate) fn bytes(what: &'static str, about: Option<u64>) -> Self {
        Self::counting(what, about, true)
    }

    fn counting(what: &'static str, total: Option<u64>, sizes: bool) -> Self {
        let bar = (std::io::stderr().is_terminal() && !output::is_quiet()).then(|| bar(what, total, sizes));
        let next_line = AtomicU64::new(LINE_EVERY.as_secs());
        Self { what, bar, total, sizes, done: AtomicU64::new(0), start: Instant::now(), next_line }
    }

    /// `count` more are done.
    pub(crate) fn add(&self, count: u64) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        let elapsed = self.start.elapsed().as_secs();
        let due = self.next_line.load(Ordering::Relaxed);
        let next = elapsed + LINE_EVERY.as_secs();
        if elapsed >= due
            && self.next_line.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.line(done);
        }
    }

    fn line(&self, done: u64) {
        if output::is_quiet() {
            return;
        }
        match self.total {
            Some(total) if self.sizes => errln!("{}: {} of about {}", self.what, human(done), human(total)),
            Some(total) => errln!("{}: {done} of {total}", self.what),
            None if self.sizes => errln!("{}: {}", self.what, human(done)),
            None => errln!("{}: {done}", self.what),
        }
    }

    /// Says something that is not progress, without tearing the bar.
    pub(crate) fn say(&self, message: impl Display) {
        let say = || errln!("{message}");
        self.bar.as_ref().map_or_else(say, |bar| bar.suspend(say));
    }

    /// Takes the count of one of several pieces of work, which each begin at 0, as `.control` tells
    /// it.
    pub(crate) fn piece(&self) -> impl FnMut(u64, u64) + '_ {
        let mut before = 0;
        move |count, _| {
            self.add(count.saturating_sub(before));
            before = count;
        }
    }

    /// How many are done.
    pub(crate) fn count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends it without a word, where nothing was done.
    pub(crate) fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Ends it; how many were done, and in what time.
    pub(crate) fn finish(self) -> (u64, Duration) {
        let done = self.done.load(Ordering::Relaxed);
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None => self.line(done),
        }
        (done, self.start.elapsed())
    }
}

fn bar(what: &'static str, total: Option<u64>, sizes: bool) -> ProgressBar {
    let template = match total {
        Some(_) if sizes => {
            "{msg}: {wide_bar} {binary_bytes} of about {binary_total_bytes} {binary_bytes_per_sec} {eta}"
        }
        None if sizes => "{msg}: {spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}",
        Some(_) => "{msg}: {wide_bar} {pos}/{len} {per_sec} {eta}",
        None => "{msg}: {spinner} {pos} {per_sec} {elapsed}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style);
    bar.set_message(what);
    bar.tick();
    bar.enable_steady_tick(TICK);
    bar
}
