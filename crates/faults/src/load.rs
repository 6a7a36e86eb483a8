//! Work for many threads whose outcome is known exactly, however their calls interleave.
//!
//! What must stay true: every thread works on names of its own in directories that all share, so
//! that it knows what each call must answer; any other answer is a fault.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use sluice_types::{Ino, Rng};

use crate::volume::Client;

/// Directories that the threads share.
const DIRS: u64 = 3;
/// Names that each thread uses in each.
const NAMES: u64 = 6;

/// Content of a file: what tells it from all others.
fn content(stamp: u64) -> Vec<u8> {
    let mut bytes = vec![0; 100 + (stamp % 7) as usize * 5000];
    Rng::seeded(stamp).fill(&mut bytes);
    bytes
}

/// What is there: files with their content, directories without.
type Model = BTreeMap<(u64, String), Option<u64>>;

/// What the work must have left behind.
pub struct Outcome {
    dirs: Vec<Ino>,
    models: Vec<Model>,
    /// Operations that were acknowledged.
    pub done: u64,
}

/// Shared by those who work and whoever breaks things meanwhile.
#[derive(Default)]
pub struct Progress {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Operations acknowledged so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Waits until `more` operations were acknowledged from now on.
    pub fn wait_for(&self, more: u64) {
        let wanted = self.done() + more;
        crate::eventually("the work goes on", || self.done() >= wanted || self.stop.load(Ordering::SeqCst));
    }
}

/// Ends the work however `run` comes out, so that a fault does not hang the test.
struct Stopping<'a>(&'a Progress);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}

/// Has `threads` threads of each client work, until `meanwhile` ends.
pub fn run(clients: &[&Client], threads: u64, seed: u64, meanwhile: impl FnOnce(&Progress)) -> Outcome {
    let root = Ino::ROOT;
    let dirs: Vec<Ino> = (0..DIRS).map(|dir| clients[0].mkdir(root, &format!("d{dir}")).unwrap()).collect();
    let progress = Progress::default();
    let total = threads * clients.len() as u64;
    let models = thread::scope(|scope| {
        let workers: Vec<_> = (0..total)
            .map(|thread| {
                let (client, dirs, progress) = (clients[thread as usize % clients.len()], &dirs, &progress);
                scope.spawn(move || {
                    let _stopping = Stopping(progress);
                    Worker {
                        client,
                        dirs,
                        thread,
                        rng: Rng::seeded(seed * 1000 + thread),
                        model: Model::new(),
                    }
                    .work(progress, seed)
                })
            })
            .collect();
        {
            let _stopping = Stopping(&progress);
            meanwhile(&progress);
        }
        workers.into_iter().map(|worker| worker.join().expect("a thread met a fault")).collect()
    });
    Outcome { dirs, models, done: progress.done() }
}

struct Worker<'a> {
    client: &'a Client,
    dirs: &'a [Ino],
    thread: u64,
    rng: Rng,
    model: Model,
}

impl Worker<'_> {
    fn work(mut self, progress: &Progress, seed: u64) -> Model {
        for turn in 0.. {
            if progress.stop.load(Ordering::SeqCst) {
                break;
            }
            if let Err(error) = self.step((self.thread << 32) + turn) {
                panic!("seed {seed}, thread {}, operation {turn}: {error}", self.thread);
            }
            progress.done.fetch_add(1, Ordering::SeqCst);
        }
        self.model
    }

    fn name(&mut self) -> (u64, String) {
        (self.rng.below(DIRS), format!("t{}n{}", self.thread, self.rng.below(NAMES)))
    }

    fn step(&mut self, stamp: u64) -> Result<(), String> {
        let at = self.name();
        let (dir, name) = (self.dirs[at.0 as usize], at.1.as_str());
        let reported = |what: &str| {
            let what = format!("{what} {name} in {dir}");
            move |error| format!("{what}: {error}")
        };
        match (self.model.get(&at).copied(), self.rng.below(4)) {
            (None, 0) => {
                self.client.mkdir(dir, name).map_err(reported("mkdir"))?;
                self.model.insert(at, None);
            }
            (None, _) => {
                self.client.put(dir, name, &content(stamp)).map_err(reported("create"))?;
                self.model.insert(at, Some(stamp));
            }
            (Some(None), _) => {
                self.client.rmdir(dir, name).map_err(reported("rmdir"))?;
                self.model.remove(&at);
            }
            (Some(Some(_)), 0) => {
                self.client.unlink(dir, name).map_err(reported("unlink"))?;
                self.model.remove(&at);
            }
            (Some(Some(was)), 1) => {
                let ino = self.client.lookup(dir, name).map_err(reported("lookup"))?.ino;
                let read = self.client.get(ino).map_err(reported("read"))?;
                if read != content(was) {
                    return Err(format!("{name} in {dir} holds {} other bytes", read.len()));
                }
            }
            (Some(was), _) => {
                let to = self.name();
                if matches!(self.model.get(&to), Some(None)) || to == at {
                    return Ok(());
                }
                let target = (self.dirs[to.0 as usize], to.1.as_str());
                self.client.rename((dir, name), target).map_err(reported("rename"))?;
                self.model.remove(&at);
                self.model.insert(to, was);
            }
        }
        Ok(())
    }
}

impl Outcome {
    /// Fails unless `client` sees exactly what was acknowledged.
    pub fn assert_seen_by(&self, client: &Client) {
        for (number, dir) in self.dirs.iter().enumerate() {
            let number = number as u64;
            let of_dir = |(at, _): &(&(u64, String), &Option<u64>)| at.0 == number;
            let expected: BTreeMap<String, Option<u64>> = self
                .models
                .iter()
                .flatten()
                .filter(of_dir)
                .map(|((_, name), content)| (name.clone(), *content))
                .collect();
            let listed = client.list(*dir, true).unwrap();
            assert_eq!(listed, expected.keys().cloned().collect::<Vec<_>>(), "names in directory {number}");
            for (name, stamp) in expected {
                let entry = client.lookup(*dir, &name).unwrap();
                assert_eq!(entry.attr.is_dir(), stamp.is_none(), "{name}");
                if let Some(stamp) = stamp {
                    assert!(client.get(entry.ino).unwrap() == content(stamp), "content of {name}");
                }
            }
        }
    }
}
