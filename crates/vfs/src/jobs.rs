//! The background work of a mounted volume: heartbeats, deletion of removed files, and the hourly
//! cleanup.
//!
//! What must stay true: no request waits for any of this, and nothing is lost if it never runs: the
//! metadata keeps a record of each deletion until it is done.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use sluice_data::DataStore;
use sluice_meta::{BlockSink, Interrupt, Meta};
use sluice_types::{FsError, FsResult, Rng, Scheduled, Timetable, wait};

use crate::{
    config::VfsConfig,
    delete_queue::{DeleteQueue, IDLE_CHECK, Task},
};

/// Threads that delete data.
const DELETERS: usize = 4;
/// How long an unmount waits for deletions.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const CLEANUP: Periodic = Periodic { interval: Duration::from_hours(1), what: "the hourly cleaning" };
/// Of all clients.
const TRIM: Periodic = Periodic { interval: Duration::from_mins(5), what: "the trimming of the change log" };

/// Deletes blocks through the data path.
pub(crate) struct Sink(pub(crate) Arc<DataStore>);

impl BlockSink for Sink {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        self.0.delete_slices(slices).into_iter().map(|deleted| deleted.map_err(FsError::io)).collect()
    }
}

/// The background threads of a mount.
pub(crate) struct Jobs {
    queue: DeleteQueue,
    stops: Mutex<Vec<Interrupt>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Instead of threads.
    scheduled: Vec<Scheduled>,
    stopped: AtomicBool,
}

impl Jobs {
    pub(crate) fn start(meta: &Arc<Meta>, data: &Arc<DataStore>, config: &VfsConfig) -> Self {
        let mut jobs = Self {
            queue: DeleteQueue::default(),
            stops: Mutex::default(),
            threads: Mutex::default(),
            scheduled: Vec::new(),
            stopped: AtomicBool::new(false),
        };
        if let Some(timetable) = &config.timetable {
            jobs.schedule(timetable, meta, data, config);
            return jobs;
        }
        jobs.spawn("sluice-beat", {
            let (meta, config) = (Arc::clone(meta), config.clone());
            move |stop| beats(&meta, &config, &stop)
        });
        if meta.is_read_only() {
            return jobs;
        }
        for _ in 0..DELETERS {
            let (meta, sink, queue) = (Arc::clone(meta), Sink(Arc::clone(data)), jobs.queue.clone());
            jobs.spawn("sluice-delete", move |stop| deletions(&meta, &sink, &queue, &stop));
        }
        if config.cleaning {
            let (meta, sink) = (Arc::clone(meta), Sink(Arc::clone(data)));
            jobs.spawn("sluice-clean", move |stop| {
                CLEANUP.repeat(&stop, || meta.clean(&sink, &stop));
            });
        }
        // A log that is switched on later is trimmed with the hourly cleaning.
        if config.cleaning && meta.env().format().change_log {
            let meta = Arc::clone(meta);
            jobs.spawn("sluice-trim", move |stop| {
                TRIM.repeat(&stop, || meta.trim_log(&stop));
            });
        }
        jobs
    }

    /// The same work as tasks of a timetable.
    fn schedule(
        &mut self,
        timetable: &Timetable,
        meta: &Arc<Meta>,
        data: &Arc<DataStore>,
        config: &VfsConfig,
    ) {
        let stop = Interrupt::never();
        self.stops.lock().push(stop.clone());
        self.scheduled.push(timetable.add(config.heartbeat, {
            let (meta, config) = (Arc::clone(meta), config.clone());
            move || beat(&meta, &config).then_some(config.heartbeat)
        }));
        if meta.is_read_only() {
            return;
        }
        let deletes = timetable.add(IDLE_CHECK, {
            let (meta, sink, queue) = (Arc::clone(meta), Sink(Arc::clone(data)), self.queue.clone());
            let stop = stop.clone();
            move || match queue.try_pop()? {
                Ok(task) => {
                    delete(&meta, &sink, task, &queue, &stop);
                    Some(Duration::ZERO)
                }
                Err(pause) => Some(pause),
            }
        });
        self.queue.wakes(deletes);
        if config.cleaning {
            let (meta, sink, stop) = (Arc::clone(meta), Sink(Arc::clone(data)), stop.clone());
            self.schedule_job(timetable, CLEANUP, stop.clone(), move || meta.clean(&sink, &stop));
        }
        if config.cleaning && meta.env().format().change_log {
            let meta = Arc::clone(meta);
            self.schedule_job(timetable, TRIM, stop.clone(), move || meta.trim_log(&stop));
        }
    }

    fn schedule_job(
        &mut self,
        timetable: &Timetable,
        job: Periodic,
        stop: Interrupt,
        work: impl Fn() -> FsResult<()> + Send + 'static,
    ) {
        let mut rng = Rng::from_os();
        self.scheduled.push(timetable.add(job.pause(&mut rng), move || {
            job.run(&stop, &work);
            Some(job.pause(&mut rng))
        }));
    }

    /// Starts a thread that ends with the others.
    pub(crate) fn spawn(&self, name: &str, run: impl FnOnce(Interrupt) + Send + 'static) {
        let stop = Interrupt::never();
        self.stops.lock().push(stop.clone());
        match wait::spawn(name, move || run(stop)) {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => tracing::error!(%error, "background thread {name} could not be started"),
        }
    }

    pub(crate) fn queue(&self) -> DeleteQueue {
        self.queue.clone()
    }

    /// Ends all background work, after a short wait for deletions.
    pub(crate) fn stop(&self) {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        self.queue.drain(STOP_TIMEOUT);
        self.queue.close();
        self.stops.lock().iter().for_each(Interrupt::set);
        self.scheduled.iter().chain(self.queue.task()).for_each(Scheduled::end);
        for thread in self.threads.lock().drain(..) {
            if thread.thread().id() != thread::current().id() && wait::join(thread).is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

impl Jobs {
    /// Makes all background work end, without a wait. Deletions that are not done stay on record.
    pub(crate) fn leave(&self) {
        self.queue.close();
        self.stops.lock().iter().for_each(Interrupt::set);
        self.scheduled.iter().chain(self.queue.task()).for_each(Scheduled::cancel);
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.leave();
    }
}

fn beats(meta: &Meta, config: &VfsConfig, stop: &Interrupt) {
    loop {
        stop.sleep(config.heartbeat);
        if stop.is_set() || !beat(meta, config) {
            return;
        }
    }
}

/// One heartbeat; whether there are to be more.
fn beat(meta: &Meta, config: &VfsConfig) -> bool {
    match meta.beat() {
        Ok(Ok(())) => {}
        Ok(Err(ended)) => {
            tracing::error!(%ended, "the mount ends");
            if let Some(on_ended) = &config.on_ended {
                on_ended(ended);
            }
            return false;
        }
        Err(error) => tracing::warn!(%error, "the heartbeat failed; it is tried again"),
    }
    true
}

/// Work that is done again and again.
#[derive(Clone, Copy)]
struct Periodic {
    /// Time between two runs, plus or minus up to a twentieth.
    interval: Duration,
    what: &'static str,
}

impl Periodic {
    fn pause(self, rng: &mut Rng) -> Duration {
        let twentieth = self.interval / 20;
        let jitter = Duration::from_millis(rng.below(2 * twentieth.as_millis() as u64));
        self.interval.saturating_sub(twentieth) + jitter
    }

    /// Does it until it is to stop.
    fn repeat(self, stop: &Interrupt, work: impl Fn() -> FsResult<()>) {
        let mut rng = Rng::from_os();
        loop {
            stop.sleep(self.pause(&mut rng));
            if stop.is_set() {
                return;
            }
            self.run(stop, &work);
        }
    }

    fn run(self, stop: &Interrupt, work: impl Fn() -> FsResult<()>) {
        if let Err(error) = work()
            && !stop.is_set()
        {
            tracing::warn!(%error, "{} did not finish; it goes on with the next", self.what);
        }
    }
}

fn deletions(meta: &Meta, sink: &Sink, queue: &DeleteQueue, stop: &Interrupt) {
    while let Some(task) = queue.pop() {
        delete(meta, sink, task, queue, stop);
    }
}

fn delete(meta: &Meta, sink: &Sink, task: Task, queue: &DeleteQueue, stop: &Interrupt) {
    let deleted = match task {
        Task::Files(files) => meta.delete_files(&files, sink, stop),
        Task::Slices(slices) => meta.delete_slices(&slices, sink, stop),
        Task::Recorded => meta.clean_deleted_files(i64::MAX, sink, stop),
    };
    if let Err(error) = deleted
        && !stop.is_set()
    {
        tracing::warn!(%error, "something removed could not be deleted; the hourly cleaning tries again");
    }
    queue.finished();
}
