//! What one rendering client does: it visits files in an order of its own. A visit is some stats,
//! an open, a stat of the open file, some reads, and a close.
//!
//! What must stay true: the order follows from the seed and the client's number. Every length and
//! every byte is compared.

use anyhow::{Result, ensure};
use clap::Args;
use sluice_types::Rng;

use super::{
    data_set::{DataSet, IN_DIR, is_content, shuffle},
    mount::Mount,
};

/// Bytes of a request that reads a file from end to end.
const WHOLE: usize = 128 << 10;
/// Files that a client takes of a directory, at most, before it goes on with another one.
const OF_DIR: usize = 20;

/// The work of all clients.
#[derive(Args, Clone, Debug)]
pub(crate) struct Work {
    /// Share of the published data set (65,113 files, 35 GB), in files and in bytes
    #[arg(long, default_value_t = 0.02)]
    pub(crate) scale: f64,
    /// Reads of all clients together: the more clients, the fewer files each visits
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) reads: u64,
    /// Visits of each file of a client
    #[arg(long, default_value_t = 16)]
    pub(crate) visits: usize,
    /// Stats before each open
    #[arg(long, default_value_t = 3)]
    pub(crate) stats: usize,
    /// Reads after each open, each at a place of its own
    #[arg(long, default_value_t = 4)]
    pub(crate) reads_of_visit: usize,
    /// Bytes of a read
    #[arg(long, default_value_t = 1600)]
    pub(crate) read_size: usize,
    /// Each client reads every file of the set once, from end to end, instead
    #[arg(long)]
    pub(crate) whole: bool,
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Work {
    /// The same as arguments of another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut out: Vec<String> = [
            ("--scale", self.scale.to_string()),
            ("--reads", self.reads.to_string()),
            ("--visits", self.visits.to_string()),
            ("--stats", self.stats.to_string()),
            ("--reads-of-visit", self.reads_of_visit.to_string()),
            ("--read-size", self.read_size.to_string()),
            ("--seed", self.seed.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        out.extend(self.whole.then(|| "--whole".to_owned()));
        out
    }

    /// Files that each of `clients` visits.
    pub(crate) fn files(&self, clients: usize, set: &DataSet) -> usize {
        if self.whole {
            return set.files();
        }
        let of_file = self.visits * self.reads_of_visit;
        (self.reads as usize / clients.max(1) / of_file.max(1)).clamp(1, set.files())
    }

    fn visits(&self) -> usize {
        if self.whole { 1 } else { self.visits }
    }
}

/// A client at work.
pub(crate) struct Visitor<M> {
    pub(crate) mount: M,
    rng: Rng,
    /// The visits that are left, last one first.
    left: Vec<u32>,
    pub(crate) done: Done,
}

/// What clients did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Stats and opens of the program.
    pub(crate) asked: u64,
    pub(crate) reads: u64,
    pub(crate) bytes: u64,
}

impl<M: Mount> Visitor<M> {
    /// Client number `number` of `clients`.
    pub(crate) fn new(mount: M, number: usize, clients: usize, work: &Work, set: &DataSet) -> Self {
        let mut rng = Rng::seeded(work.seed.wrapping_mul(1 << 20) + number as u64);
        let files = choose(work.files(clients, set), set, &mut rng);
        let mut left: Vec<u32> = files.iter().flat_map(|file| vec![*file; work.visits()]).collect();
        shuffle(&mut left, &mut rng);
        Self { mount, rng, left, done: Done::default() }
    }

    /// The next visit. Whether there are more.
    pub(crate) fn turn(&mut self, work: &Work, set: &DataSet, buffer: &mut Vec<u8>) -> Result<bool> {
        let Some(file) = self.left.pop() else { return Ok(false) };
        let file = file as usize;
        let size = set.size(file);
        for _ in 0..work.stats {
            self.done.asked += 1;
            ensure!(self.mount.stat(file)? == size, "file {file} has another length");
        }
        self.mount.open(file)?;
        ensure!(self.mount.fstat()? == size, "file {file} has another length when it is open");
        self.done.asked += 2;
        if work.whole {
            let mut at = 0;
            while at < size {
                let length = WHOLE.min((size - at) as usize);
                self.read(file, at, length, buffer)?;
                at += length as u64;
            }
        } else {
            let length = work.read_size.min(size as usize);
            for _ in 0..work.reads_of_visit {
                let at = self.rng.below(size - length as u64 + 1);
                self.read(file, at, length, buffer)?;
            }
        }
        self.mount.close()?;
        Ok(!self.left.is_empty())
    }

    fn read(&mut self, file: usize, at: u64, length: usize, buffer: &mut Vec<u8>) -> Result<()> {
        self.mount.read(at, length, buffer)?;
        let right = buffer.len() == length && is_content(file, at, buffer);
        ensure!(right, "file {file} has other bytes at {at}");
        self.done.reads += 1;
        self.done.bytes += length as u64;
        Ok(())
    }
}

/// Chooses files, some of each of a few directories.
fn choose(count: usize, set: &DataSet, rng: &mut Rng) -> Vec<u32> {
    let mut dirs: Vec<usize> = (0..set.dirs()).collect();
    shuffle(&mut dirs, rng);
    let mut chosen = Vec::new();
    let mut rest = Vec::new();
    for dir in dirs {
        let mut files: Vec<u32> =
            (dir * IN_DIR..((dir + 1) * IN_DIR).min(set.files())).map(|file| file as u32).collect();
        shuffle(&mut files, rng);
        rest.extend(files.split_off(files.len().min(OF_DIR)));
        chosen.extend(files);
        if chosen.len() >= count {
            break;
        }
    }
    if chosen.len() < count {
        shuffle(&mut rest, rng);
        chosen.extend(rest);
    }
    chosen.truncate(count);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_chooses_each_file_once() {
        let set = DataSet::new(0.01);
        for count in [1, 30, 300, set.files()] {
            let mut chosen = choose(count, &set, &mut Rng::seeded(3));
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), count);
        }
    }
}
