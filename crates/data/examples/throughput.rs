//! Measures the data path over a `file` store, without FUSE and metadata.
//!
//! `cargo run --release -p sluice-data --example throughput -- <directory> [mebibytes]`

use std::{
    collections::HashMap,
    env, fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_data::{CacheConfig, ChunkIndex, DataConfig, DataStore};
use sluice_object::FileStore;
use sluice_types::{FsResult, Ino, Rng, Slice, Time};

const INO: Ino = Ino(2);
const MIB: u64 = 1 << 20;

type Chunks = HashMap<(Ino, u32), Arc<[Slice]>>;

/// Records in memory: metadata that costs nothing.
#[derive(Default)]
struct Index(Mutex<Chunks>, AtomicU64);

impl ChunkIndex for Index {
    fn slices(&self, ino: Ino, index: u32, _: bool) -> FsResult<Arc<[Slice]>> {
        Ok(self.0.lock().entry((ino, index)).or_insert_with(|| Arc::new([])).clone())
    }

    fn new_slice_id(&self) -> FsResult<u64> {
        Ok(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn commit(&self, ino: Ino, index: u32, records: &[Slice], _: Time) -> FsResult<u32> {
        let mut chunks = self.0.lock();
        let chunk = chunks.entry((ino, index)).or_insert_with(|| Arc::new([]));
        *chunk = chunk.iter().chain(records).copied().collect();
        Ok(chunk.len() as u32)
    }

    fn replace(&self, ino: Ino, index: u32, old: &[Slice], keep: usize, new: Slice) -> FsResult<bool> {
        let mut chunks = self.0.lock();
        let Some(chunk) = chunks.get_mut(&(ino, index)).filter(|chunk| chunk.starts_with(old)) else {
            return Ok(false);
        };
        *chunk = old[..keep].iter().chain([&new]).chain(&chunk[old.len()..]).copied().collect();
        Ok(true)
    }
}

fn open(dir: &Path, index: &Arc<Index>, cached: bool) -> Result<DataStore, Box<dyn std::error::Error>> {
    let dirs = if cached { vec![dir.join("cache")] } else { Vec::new() };
    let config = DataConfig {
        volume: "bench".into(),
        cache: CacheConfig { dirs, ..CacheConfig::default() },
        ..DataConfig::default()
    };
    let store = FileStore::new(format!("{}/store/", dir.display()), false)?;
    Ok(DataStore::open(&config, Arc::new(store), Arc::clone(index) as Arc<dyn ChunkIndex>, None)?)
}

fn report(what: &str, started: Instant, bytes: u64, count: u64) {
    let seconds = started.elapsed().as_secs_f64();
    let rate = bytes as f64 / seconds / MIB as f64;
    println!("{what:<44} {rate:>9.0} MiB/s {:>10.0} /s", count as f64 / seconds);
}

fn write(data: &DataStore, ino: Ino, size: u64, piece: u64) -> FsResult<()> {
    let (writer, buffer) = (data.writer(ino), vec![7u8; piece as usize]);
    for at in (0..size).step_by(piece as usize) {
        writer.write(at, &buffer, Time::from_nanos(1))?;
    }
    writer.fsync()
}

fn read(data: &DataStore, ino: Ino, size: u64, piece: u64) -> FsResult<()> {
    let reader = data.reader(ino);
    for at in (0..size).step_by(piece as usize) {
        let pieces = reader.read(at, piece as u32, size)?;
        std::hint::black_box(pieces);
    }
    Ok(())
}

fn read_random(data: &DataStore, ino: Ino, size: u64, patience: Duration) -> FsResult<u64> {
    let (reader, mut rng, started, mut count) = (data.reader(ino), Rng::seeded(1), Instant::now(), 0);
    while started.elapsed() < patience {
        std::hint::black_box(reader.read(rng.below(size / 4096) * 4096, 4096, size)?);
        count += 1;
    }
    Ok(count)
}

fn write_random(data: &DataStore, ino: Ino, size: u64, count: u64) -> FsResult<()> {
    let (writer, mut rng, buffer) = (data.writer(ino), Rng::seeded(2), [9u8; 4096]);
    for _ in 0..count {
        writer.write(rng.below(size / 4096) * 4096, &buffer, Time::from_nanos(1))?;
    }
    writer.fsync()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let dir = args.next().ok_or("which directory?")?;
    let size = args.next().map_or(Ok(1024), |size| size.parse::<u64>())? * MIB;
    let dir = Path::new(&dir).join("sluice-throughput");
    let _ = fs::remove_dir_all(&dir);
    let index = Arc::new(Index::default());

    let data = open(&dir, &index, false)?;
    let started = Instant::now();
    write(&data, INO, size, MIB)?;
    report("sequential write, 1 MiB", started, size, size / MIB);
    let started = Instant::now();
    write(&data, Ino(3), size, 128 << 10)?;
    report("sequential write, 128 KiB", started, size, size / (128 << 10));
    let started = Instant::now();
    write(&data, Ino(4), 64 * MIB, 4096)?;
    report("sequential write, 4 KiB", started, 64 * MIB, 64 * MIB / 4096);
    let started = Instant::now();
    for n in 0..5000 {
        write(&data, Ino(1000 + n), 4096, 4096)?;
    }
    report("files of 4 KiB, written and closed", started, 5000 * 4096, 5000);
    drop(data);

    let data = open(&dir, &index, false)?;
    let started = Instant::now();
    read(&data, INO, size, MIB)?;
    report("sequential read, 1 MiB, nothing cached", started, size, size / MIB);
    drop(data);
    let data = open(&dir, &index, false)?;
    let started = Instant::now();
    read(&data, INO, size, 128 << 10)?;
    report("sequential read, 128 KiB, nothing cached", started, size, size / (128 << 10));
    let started = Instant::now();
    for n in 0..5000 {
        read(&data, Ino(1000 + n), 4096, 4096)?;
    }
    report("files of 4 KiB, read, nothing cached", started, 5000 * 4096, 5000);
    read(&data, INO, 32 * MIB, MIB)?;
    let started = Instant::now();
    let count = read_random(&data, INO, 32 * MIB, Duration::from_secs(2))?;
    report("random read, 4 KiB, from memory", started, count * 4096, count);
    drop(data);

    let data = open(&dir, &index, true)?;
    while data.stats().cache_bytes.get() < size * 95 / 100 {
        read(&data, INO, size, MIB)?;
    }
    drop(data);
    let data = open(&dir, &index, true)?;
    while data.stats().cache_bytes.get() < size * 95 / 100 {
        std::thread::yield_now();
    }
    let started = Instant::now();
    read(&data, INO, size, MIB)?;
    report("sequential read, 1 MiB, from cache files", started, size, size / MIB);
    let started = Instant::now();
    let count = read_random(&data, INO, size, Duration::from_secs(2))?;
    report("random read, 4 KiB, from cache files", started, count * 4096, count);
    drop(data);

    let data = open(&dir, &index, false)?;
    for (name, size, count) in [
        ("random write, 4 KiB, over 256 MiB, fsync", 256 * MIB, 65536),
        ("random write, 4 KiB, over all, fsync", size, 262_144),
    ] {
        let started = Instant::now();
        write_random(&data, INO, size, count)?;
        report(name, started, count * 4096, count);
        let records: usize = index.0.lock().values().map(|chunk| chunk.len()).sum();
        let stats = data.stats();
        println!(
            "  {records} records, {} compactions of {} MiB, {} puts",
            stats.compactions.get(),
            stats.compacted_bytes.get() / MIB,
            stats.puts.get()
        );
    }
    println!("memory budget at most {} MiB", data.buffered().1 / MIB);
    drop(data);
    fs::remove_dir_all(&dir)?;
    Ok(())
}
