//! Rows about slow wake-ups: random reads from the block cache while every processor is busy with
//! something else, so that whoever is woken has to wait for its turn.
//!
//! What must stay true: each processor has the same number of neighbours that never sleep, at the
//! same priority as the programs.

use super::{
    Turn,
    file::{self, PIECE, open},
    place::{Blocks, Place},
};
use crate::pattern;
use anyhow::Context;
use rand::{SeedableRng, rngs::StdRng};
use rustix::{
    fs::OFlags,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    hint, iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Neighbours on each processor, row by row.
const NEIGHBOURS: [usize; 2] = [1, 4];

/// Pages a second of a file that is a quarter of the large one, and MiB of the mount.
pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let Some(mut place) = Place::new(turn)? else { return Ok(vec![None; 3]) };
    let (pieces, path) = (turn.plan.sizes.large / 4, place.path().join("large"));
    let mut buffer = pattern::bytes(turn.seed(), PIECE);
    file::write(&path, pieces, &mut buffer)?;
    file::warm(&mut place, &path, pieces, &mut buffer)?;
    place.cold(Blocks::Stay)?;
    place.highest()?;
    let mut rng = StdRng::seed_from_u64(turn.seed());
    let opened = open(&path, OFlags::RDONLY)?;
    let mut figures = Vec::new();
    for count in NEIGHBOURS {
        let chosen = file::pages(&mut rng, pieces, turn.plan.sizes.random);
        let _neighbours = Neighbours::start(count)?;
        figures.push(Some(file::read_pages(&opened, &chosen)?));
    }
    drop(opened);
    figures.push(place.highest()?);
    place.finish()?;
    Ok(figures)
}

/// Threads on each processor that this process may use; they end when this is dropped.
struct Neighbours {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    fn start(count: usize) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None).context("which processors may be used")?;
        let mut neighbours = Self { done: Arc::default(), threads: Vec::new() };
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        for processor in processors.flat_map(|processor| iter::repeat_n(processor, count)) {
            let done = Arc::clone(&neighbours.done);
            neighbours.threads.push(thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).expect("a processor that this process may use");
                while !done.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            }));
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
