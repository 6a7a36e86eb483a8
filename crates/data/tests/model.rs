//! Random writes, reads, truncations, flushes and compactions against an array of bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::time::Duration;

use sluice_data::{CacheConfig, DataConfig, DataStore, FileReader, WritebackConfig};
use sluice_object::Compression;
use sluice_types::{CHUNK_SIZE, Ino, Interrupt, Rng, Time};

use self::support::{Volume, read_all, small};

const INO: Ino = Ino(7);
const WINDOW: u64 = 40 << 10;
/// Windows of the file that are written to: across the border of two chunks, and at the start of
/// one.
const BASES: [u64; 2] = [CHUNK_SIZE - WINDOW / 2, 2 * CHUNK_SIZE];
const LENGTH: u64 = 3 * CHUNK_SIZE;

struct Run<'a> {
    volume: &'a Volume,
    data: DataStore,
    reader: FileReader,
    model: [Vec<u8>; 2],
    rng: Rng,
    time: i64,
}

impl Run<'_> {
    fn step(&mut self) {
        match self.rng.below(100) {
            0..45 => self.write(),
            45..85 => self.read(),
            85..90 => self.data.flush(INO).unwrap(),
            90..92 => self.data.writer(INO).fsync(|| true).unwrap(),
            92..95 => self.truncate(),
            _ => self.compact(),
        }
        for (id, size) in self.volume.index.garbage() {
            self.data.delete_slice(id, size).unwrap();
        }
    }

    fn range(&mut self) -> (usize, usize, usize) {
        let window = self.rng.below(2) as usize;
        let most = [100, 6 << 10, 20 << 10][self.rng.below(3) as usize];
        let from = self.rng.below(WINDOW - 1);
        let len = 1 + self.rng.below(most).min(WINDOW - from - 1);
        (window, from as usize, (from + len) as usize)
    }

    fn write(&mut self) {
        let (window, from, to) = self.range();
        // Now and then a reader of sequence: pieces that follow each other.
        let step = if self.rng.below(3) == 0 { 700 } else { to - from };
        self.rng.fill(&mut self.model[window][from..to]);
        let writer = self.data.writer(INO);
        let mut at = from;
        while at < to {
            let end = (at + step).min(to);
            self.time += 1;
            let offset = BASES[window] + at as u64;
            writer.write(offset, &self.model[window][at..end], Time::from_nanos(self.time)).unwrap();
            at = end;
        }
    }

    fn read(&mut self) {
        let (window, from, to) = self.range();
        let bytes = self
            .reader
            .read(BASES[window] + from as u64, (to - from) as u32, LENGTH, &Interrupt::never())
            .unwrap()
            .concat();
        assert!(bytes == self.model[window][from..to], "window {window}, bytes {from} to {to}");
    }

    fn truncate(&mut self) {
        let (window, from, _) = self.range();
        let length = BASES[window] + from as u64;
        self.data.writer(INO).flush().unwrap();
        self.volume.index.truncate(INO, length);
        for (model, base) in self.model.iter_mut().zip(BASES) {
            let keep = length.saturating_sub(base).min(WINDOW) as usize;
            model[keep..].fill(0);
        }
        assert_eq!(self.data.dirty_end(INO), 0);
    }

    fn compact(&mut self) {
        let index = self.rng.below(3) as u32;
        self.data.compact(INO, index).unwrap();
    }
}

fn run(seed: u64, config: &DataConfig, steps: usize) {
    println!("seed {seed}");
    let volume = Volume::default();
    let data = volume.open(config);
    let reader = data.reader(INO);
    let model = [vec![0; WINDOW as usize], vec![0; WINDOW as usize]];
    let mut run = Run { volume: &volume, data, reader, model, rng: Rng::seeded(seed), time: 0 };
    for _ in 0..steps {
        run.step();
    }
    run.data.flush_all().unwrap();
    assert_eq!(run.data.flush_staging(Duration::from_mins(1)), 0);
    let Run { data, reader, model, .. } = run;
    drop((reader, data));
    // A client that has nothing cached, and one that has whatever is left in the files.
    for config in [&DataConfig { cache: CacheConfig::default(), writeback: None, ..config.clone() }, config] {
        let data = volume.open(&DataConfig { auto_compact: false, ..config.clone() });
        for (model, base) in model.iter().zip(BASES) {
            assert!(read_all(&data, INO, base, WINDOW as u32, LENGTH).unwrap() == *model, "seed {seed}");
        }
    }
    let data = volume.open(config);
    volume.check(&data);
}

#[test]
fn plain() {
    for seed in 0..12 {
        run(seed, &DataConfig { auto_compact: false, ..small(4 << 10) }, 400);
    }
}

#[test]
fn with_flushes_by_themselves() {
    let config = DataConfig { flush_idle: Duration::from_millis(1), auto_compact: false, ..small(1 << 10) };
    for seed in 100..106 {
        run(seed, &config, 400);
    }
}

#[test]
fn with_little_memory() {
    let config = DataConfig { buffer_size: 16 << 10, auto_compact: false, ..small(4 << 10) };
    for seed in 200..204 {
        run(seed, &config, 250);
    }
}

#[test]
fn with_cache_files_and_compression() {
    for seed in 300..306 {
        let dir = tempfile::tempdir().unwrap();
        let cache = CacheConfig {
            dirs: vec![dir.path().into()],
            size: 60 << 10,
            free_space_ratio: 0.0,
            ..CacheConfig::default()
        };
        let config =
            DataConfig { cache, compression: Compression::Lz4, auto_compact: false, ..small(4 << 10) };
        run(seed, &config, 300);
    }
}

#[test]
fn with_write_back() {
    for seed in 400..406 {
        let dir = tempfile::tempdir().unwrap();
        let cache =
            CacheConfig { dirs: vec![dir.path().into()], free_space_ratio: 0.0, ..CacheConfig::default() };
        let writeback = Some(WritebackConfig::default());
        let config =
            DataConfig { cache, writeback, hash_prefix: true, auto_compact: false, ..small(4 << 10) };
        run(seed, &config, 300);
    }
}
