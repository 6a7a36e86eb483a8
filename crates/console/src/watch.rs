//! The watcher of one volume: a thread that reads its metadata periodically, even if the database
//! does not answer for a while.
//!
//! What must stay true: an HTTP request gets the state that was read last, and never waits for the
//! database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::Interrupt;
use sluice_types::{Clock as _, SystemClock};

use crate::{
    live::Live,
    survey::{Opened, Survey, Surveyor},
};

/// Opens a volume, to be read.
///
/// # Errors
/// A sentence for people, without a secret.
pub type Open = Box<dyn Fn() -> Result<Opened, String> + Send + Sync>;

/// A volume to watch.
pub struct Volume {
    /// The URL of its metadata, without a password.
    pub url: String,
    /// Opens it: at first, and again when it was lost.
    pub open: Open,
}

/// Why a volume cannot be read, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// Unix seconds.
    pub(crate) since: i64,
}

/// What was read last.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) survey: Option<Arc<Survey>>,
    pub(crate) failure: Option<Failure>,
}

/// A volume that is watched.
pub(crate) struct Watched {
    pub(crate) id: usize,
    pub(crate) url: String,
    open: Open,
    known: Mutex<Known>,
    pub(crate) live: Arc<Live>,
}

impl Watched {
    pub(crate) fn new(id: usize, volume: Volume) -> Self {
        let Volume { url, open } = volume;
        Self { id, url, open, known: Mutex::default(), live: Arc::default() }
    }

    pub(crate) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Reads the volume each `every`, and what may be long each `seldom` at most, until `stop`.
    pub(crate) fn run(&self, every: Duration, seldom: Duration, stop: &Interrupt) {
        let mut surveyor = Surveyor::new(seldom);
        let mut opened = None;
        while !stop.is_set() {
            let begun = Instant::now();
            match self.read(&mut opened, &mut surveyor, stop) {
                Ok(survey) => *self.known.lock() = Known { survey: Some(Arc::new(survey)), failure: None },
                Err(text) => {
                    // It may hold another volume by now, or none.
                    opened = None;
                    let mut known = self.known.lock();
                    let since = match &known.failure {
                        Some(failure) => failure.since,
                        None => SystemClock.now().sec,
                    };
                    known.failure = Some(Failure { text, since });
                }
            }
            stop.sleep(every.saturating_sub(begun.elapsed()).max(every / 10));
        }
    }

    fn read(
        &self,
        opened: &mut Option<Opened>,
        surveyor: &mut Surveyor,
        stop: &Interrupt,
    ) -> Result<Survey, String> {
        let opened = match opened {
            Some(opened) => opened,
            None => opened.insert((self.open)()?),
        };
        let before = self.known.lock().survey.clone();
        surveyor.read(opened, before.as_deref(), stop)
    }
}
