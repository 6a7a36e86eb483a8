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
use sluice_types::{FsResult, Ino, Interrupt, Rng, Slice, Time};

const INO: Ino = Ino(2);
const MIB: u64 = 1 << 20;

type Chunks = HashMap<(Ino, u32), Arc<[Slice]>>;

/// Records in memory: metadata that costs nothing.
#[derive(Default)]
struct Index(Mutex<Chunks>, AtomicU64);

impl ChunkIndex for Index {
    fn slices(&self, ino: Ino, index: u32, _: bool, _: &Interrupt) -> FsResult<Arc<[Slice]>> {
        Ok(self.0.lock().entry((ino, index)).or_insert_with(|| Arc::new([])).clone())
    }

    fn known_slices(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        self.0.lock().get(&(ino, index)).cloned()
    }

    fn new_slice_id(&self, _: &Interrupt) -> FsResult<u64> {
        Ok(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn commit(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        _: Time,
        _: &dyn Fn() -> bool,
    ) -> FsResult<u32> {
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

/// A clock, and the processor time of all threads: the latter tells something on a busy machine
/// too.
struct Watch(Instant, f64);

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    fn report(self, what: &str, bytes: u64, count: u64) {
        let (seconds, cpu) = (self.0.elapsed().as_secs_f64(), cpu_seconds() - self.1);
        let rate = bytes as f64 / seconds / MIB as f64;
        println!(
            "{what:<44} {rate:>7.0} MiB/s {:>9.0} /s, processor {:>7.2} us each",
            count as f64 / seconds,
            cpu * 1e6 / count as f64
        );
    }
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn write(data: &DataStore, ino: Ino, size: u64, piece: u64) -> FsResult<()> {
    let (writer, buffer) = (data.writer(ino), vec![7u8; piece as usize]);
    for at in (0..size).step_by(piece as usize) {
        writer.write(at, &buffer, Time::from_nanos(1))?;
    }
    writer.fsync(|| true)
}

fn read(data: &DataStore, ino: Ino, size: u64, piece: u64) -> FsResult<()> {
    let reader = data.reader(ino);
    for at in (0..size).step_by(piece as usize) {
        let pieces = reader.read(at, piece as u32, size, &Interrupt::never())?;
        std::hint::black_box(pieces);
    }
    Ok(())
}

fn read_random(data: &DataStore, ino: Ino, size: u64, timeout: Duration) -> FsResult<u64> {
    let (reader, mut rng, started, mut count) = (data.reader(ino), Rng::seeded(1), Instant::now(), 0);
    while started.elapsed() < timeout {
        std::hint::black_box(reader.read(rng.below(size / 4096) * 4096, 4096, size, &Interrupt::never())?);
        count += 1;
    }
    Ok(count)
}

fn write_random(data: &DataStore, ino: Ino, size: u64, count: u64) -> FsResult<()> {
    let (writer, mut rng, buffer) = (data.writer(ino), Rng::seeded(2), [9u8; 4096]);
    for _ in 0..count {
        writer.write(rng.below(size / 4096) * 4096, &buffer, Time::from_nanos(1))?;
    }
    writer.fsync(|| true)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let dir = args.next().ok_or("which directory?")?;
    let size = args.next().map_or(Ok(1024), |size| size.parse::<u64>())? * MIB;
    let dir = Path::new(&dir).join("sluice-throughput");
    let _ = fs::remove_dir_all(&dir);
    let index = Arc::new(Index::default());

    let data = open(&dir, &index, false)?;
    let watch = Watch::start();
    write(&data, INO, size, MIB)?;
    watch.report("sequential write, 1 MiB", size, size / MIB);
    let watch = Watch::start();
    write(&data, Ino(3), size, 128 << 10)?;
    watch.report("sequential write, 128 KiB", size, size / (128 << 10));
    let watch = Watch::start();
    write(&data, Ino(4), 64 * MIB, 4096)?;
    watch.report("sequential write, 4 KiB", 64 * MIB, 64 * MIB / 4096);
    let watch = Watch::start();
    for n in 0..5000 {
        write(&data, Ino(1000 + n), 4096, 4096)?;
    }
    watch.report("files of 4 KiB, written and closed", 5000 * 4096, 5000);
    drop(data);

    let data = open(&dir, &index, false)?;
    let watch = Watch::start();
    read(&data, INO, size, MIB)?;
    watch.report("sequential read, 1 MiB, nothing cached", size, size / MIB);
    drop(data);
    let data = open(&dir, &index, false)?;
    let watch = Watch::start();
    read(&data, INO, size, 128 << 10)?;
    watch.report("sequential read, 128 KiB, nothing cached", size, size / (128 << 10));
    let watch = Watch::start();
    for n in 0..5000 {
        read(&data, Ino(1000 + n), 4096, 4096)?;
    }
    watch.report("files of 4 KiB, read, nothing cached", 5000 * 4096, 5000);
    read(&data, INO, 32 * MIB, MIB)?;
    let watch = Watch::start();
    let count = read_random(&data, INO, 32 * MIB, Duration::from_secs(2))?;
    watch.report("random read, 4 KiB, from memory", count * 4096, count);
    drop(data);

    let data = open(&dir, &index, true)?;
    for chunk in 0..size.div_ceil(sluice_types::CHUNK_SIZE) {
        for record in index.slices(INO, chunk as u32, false, &Interrupt::never())?.iter() {
            for part in data.layout().parts(*record) {
                data.warm(part.block, &Interrupt::never())?;
            }
        }
    }
    drop(data);
    let data = open(&dir, &index, true)?;
    while data.stats().cache_bytes.get() < size * 95 / 100 {
        std::thread::yield_now();
    }
    let watch = Watch::start();
    read(&data, INO, size, MIB)?;
    watch.report("sequential read, 1 MiB, from cache files", size, size / MIB);
    let watch = Watch::start();
    let count = read_random(&data, INO, size, Duration::from_secs(2))?;
    watch.report("random read, 4 KiB, from cache files", count * 4096, count);
    drop(data);

    let data = open(&dir, &index, false)?;
    for (name, size, count) in [
        ("random write, 4 KiB, over 256 MiB, fsync", 256 * MIB, 65536),
        ("random write, 4 KiB, over all, fsync", size, 262_144),
    ] {
        let watch = Watch::start();
        write_random(&data, INO, size, count)?;
        watch.report(name, count * 4096, count);
        let records: usize = index.0.lock().values().map(|chunk| chunk.len()).sum();
        let stats = data.stats();
        println!(
            "  {records} records, {} compactions of {} MiB, {} puts",
            stats.times.compacted.count(),
            stats.times.compacted.read().sum as u64 / MIB,
            stats.puts.get()
        );
    }
    println!("memory budget at most {} MiB", data.buffered().1 / MIB);
    drop(data);
    fs::remove_dir_all(&dir)?;
    Ok(())
}
