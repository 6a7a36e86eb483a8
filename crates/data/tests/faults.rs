//! What happens when the store, the metadata or the local disk misbehaves.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sluice_data::{BlockKey, CacheConfig, DataConfig, DataStore, WarmError, WritebackConfig};
use sluice_types::{CHUNK_SIZE, FsError, Ino, Interrupt, Rng, Time};

use self::support::{Volume, eventually, read_all, small};

const INO: Ino = Ino(9);
const BLOCK: u32 = 4 << 10;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

fn never() -> Interrupt {
    Interrupt::never()
}

fn now() -> Time {
    Time::from_nanos(1)
}

fn cached(dir: &Path) -> DataConfig {
    let cache = CacheConfig { dirs: vec![dir.into()], free_space_ratio: 0.0, ..CacheConfig::default() };
    DataConfig { cache, ..small(BLOCK) }
}

fn written_back(dir: &Path) -> DataConfig {
    DataConfig { writeback: Some(WritebackConfig::default()), ..cached(dir) }
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { rest.push(path) } else { found.push(path) }
        }
    }
    found
}

/// Removes a directory that somebody may still be writing to.
fn remove(dir: &Path) {
    eventually("the directory goes", || fs::remove_dir_all(dir).is_ok());
}

#[test]
fn a_store_that_fails_for_a_while_is_a_delay() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let content = bytes(1, 20_000);
    volume.store.faults.errors.store(8, Ordering::Relaxed);
    data.writer(INO).write(0, &content, now()).unwrap();
    data.flush(INO).unwrap();
    assert_eq!(volume.store.faults.errors.load(Ordering::Relaxed), 0);
    assert!(read_all(&data, INO, 0, 20_000, 20_000).unwrap() == content);
    volume.check(&data);
}

#[test]
fn lost_answers_and_short_bodies_change_nothing() {
    let volume = Volume::default();
    let content = bytes(2, 50_000);
    let data = volume.open(&small(BLOCK));
    volume.store.faults.lost_answers.store(3, Ordering::Relaxed);
    data.writer(INO).write(0, &content, now()).unwrap();
    data.flush(INO).unwrap();
    assert_eq!(volume.store.faults.lost_answers.load(Ordering::Relaxed), 0);
    volume.check(&data);
    drop(data);
    let data = volume.open(&small(BLOCK));
    volume.store.faults.short_bodies.store(2, Ordering::Relaxed);
    assert!(read_all(&data, INO, 0, 50_000, 50_000).unwrap() == content);
    assert_eq!(volume.store.faults.short_bodies.load(Ordering::Relaxed), 0);
    volume.store.faults.short_bodies.store(u32::MAX, Ordering::Relaxed);
    let fresh = volume.open(&small(BLOCK));
    assert_eq!(
        read_all(&fresh, INO, 0, 50_000, 50_000),
        Err(FsError::io("")),
        "never a short or wrong answer"
    );
}

#[test]
fn an_upload_that_fails_for_good_is_told_once() {
    let volume = Volume::default();
    let data = volume.open(&DataConfig { flush_idle: Duration::from_millis(1), ..small(BLOCK) });
    let writer = data.writer(INO);
    volume.store.faults.refuse_puts.store(true, Ordering::Relaxed);
    writer.write(0, b"lost", now()).unwrap();
    eventually("the upload fails", || data.stats().commit_errors.get() == 1);
    assert_eq!(writer.write(4, b"refused", now()), Err(FsError::io("")));
    volume.store.faults.refuse_puts.store(false, Ordering::Relaxed);
    writer.write(0, b"kept", now()).unwrap();
    writer.flush().unwrap();
    assert_eq!(volume.index.records().len(), 1);
    assert_eq!(read_all(&data, INO, 0, 10, 4).unwrap(), b"kept");
}

#[test]
fn data_that_a_flush_reported_as_lost_is_not_stored_later() {
    let volume = Volume::default();
    let hour = Duration::from_hours(1);
    let data = volume.open(&DataConfig { flush_age: hour, flush_idle: hour, ..small(BLOCK) });
    let writer = data.writer(INO);
    // More chunks than there are ids. The last one has a block that is under way.
    let chunks = 100;
    writer.write(chunks * CHUNK_SIZE, &bytes(1, BLOCK as usize + 1), now()).unwrap();
    volume.index.refuse_ids.store(true, Ordering::SeqCst);
    for chunk in 0..chunks {
        writer.write(chunk * CHUNK_SIZE, b"lost", now()).unwrap();
    }
    assert_eq!(writer.flush(), Err(FsError::io("")));
    assert_eq!(writer.dirty_end(), 0, "nothing waits for a later commit");
    volume.index.refuse_ids.store(false, Ordering::SeqCst);
    let stored = volume.index.records().len();
    assert!(stored < chunks as usize);
    writer.write(0, b"kept", now()).unwrap();
    writer.flush().unwrap();
    assert_eq!(volume.index.records().len(), stored + 1);
    volume.check(&data);
}

#[test]
fn a_commit_does_not_set_back_the_time() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    writer.write(CHUNK_SIZE, b"first", Time::from_nanos(10)).unwrap();
    writer.write(0, b"the header, last", Time::from_nanos(12)).unwrap();
    writer.flush().unwrap();
    assert_eq!(volume.index.mtime(INO), Some(Time::from_nanos(12)));
}

#[test]
fn a_compaction_is_durable_before_the_records_name_it() {
    for sync_store in [true, false] {
        let volume = Volume::default();
        let data = volume.open(&DataConfig { sync_store, ..small(BLOCK) });
        for round in 0..3 {
            data.writer(INO).write(round * 10, &bytes(round, 100), now()).unwrap();
            data.flush(INO).unwrap();
        }
        let records = volume.index.records();
        if sync_store {
            volume.store.faults.sync_errors.store(1, Ordering::Relaxed);
            assert_eq!(data.compact(INO, 0), Err(FsError::io("")));
            assert_eq!(volume.index.records(), records, "they name what is durable");
        }
        assert_eq!(data.compact(INO, 0), Ok(true));
        assert_eq!(volume.store.faults.syncs.load(Ordering::Relaxed), if sync_store { 2 } else { 0 });
        volume.check(&data);
    }
}

#[test]
fn an_fsync_syncs_the_store_and_a_flush_does_not() {
    for sync_store in [true, false] {
        let volume = Volume::default();
        let data = volume.open(&DataConfig { sync_store, ..small(BLOCK) });
        let writer = data.open_writer(INO);
        writer.write(0, b"kept", now(), &never()).unwrap();
        writer.flush().unwrap();
        assert_eq!(volume.store.faults.syncs.load(Ordering::Relaxed), 0);
        volume.store.faults.sync_errors.store(1, Ordering::Relaxed);
        assert_eq!(writer.fsync(|| true).is_err(), sync_store);
        writer.fsync(|| true).unwrap();
        assert_eq!(volume.store.faults.syncs.load(Ordering::Relaxed), if sync_store { 2 } else { 0 });
    }
}

/// A child that inherited the descriptor closes it, and nobody hears what that answers.
#[test]
fn every_open_file_is_told_by_its_next_fsync() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let (one, other) = (data.open_writer(INO), data.open_writer(INO));
    volume.store.faults.refuse_puts.store(true, Ordering::Relaxed);
    one.write(0, b"lost", now(), &never()).unwrap();
    for _ in 0..2 {
        assert_eq!(one.flush(), Err(FsError::io("")));
    }
    assert_eq!(one.fsync(|| false), Err(FsError::io("")), "nobody waits for that any more");
    assert_eq!(one.fsync(|| true), Err(FsError::io("")));
    one.fsync(|| true).expect("told already");
    one.write(0, b"lost too", now(), &never()).expect("told already");
    assert_eq!(one.fsync(|| true), Err(FsError::io("")));
    volume.store.faults.refuse_puts.store(false, Ordering::Relaxed);
    let later = data.open_writer(INO);
    later.write(0, b"kept", now(), &never()).expect("told to others before it was opened");
    later.fsync(|| true).unwrap();
    assert_eq!(other.write(4, b"refused", now(), &never()), Err(FsError::io("")));
    other.write(4, b"taken", now(), &never()).expect("told once by a write");
    assert_eq!(other.fsync(|| true), Err(FsError::io("")));
    other.fsync(|| true).unwrap();
    assert_eq!(read_all(&data, INO, 0, 10, 9).unwrap(), b"kepttaken");
}

#[test]
fn a_refused_commit_leaves_no_blocks_and_an_unclear_one_does() {
    for (error, left) in [(FsError::Quota, 0), (FsError::NotFound, 0), (FsError::io("unclear"), 1)] {
        let volume = Volume::default();
        let data = volume.open(&small(BLOCK));
        *volume.index.refuse.lock() = Some(error.clone());
        data.writer(INO).write(0, b"abc", now()).unwrap();
        assert_eq!(data.flush(INO), Err(error));
        data.flush(INO).unwrap();
        eventually("blocks go", || volume.store.keys().len() == left);
    }
}

#[test]
fn a_client_that_ends_waits_for_what_would_leave_objects_behind() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    for n in 0..6u64 {
        writer.write(n * 10, &[n as u8; 5], now()).unwrap();
        writer.flush().unwrap();
    }
    let before = volume.store.faults.begun_puts.load(Ordering::SeqCst);
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    read_all(&data, INO, 0, 10, 60).unwrap();
    eventually("the new slice is written", || volume.store.faults.begun_puts.load(Ordering::SeqCst) > before);
    assert!(!data.settle(Duration::ZERO), "the store has not answered");
    volume.store.release();
    assert!(data.settle(Duration::from_mins(1)));
    assert_eq!(volume.index.records().len(), 1, "all was written, so it went on");
    volume.check(&data);
    *volume.index.refuse.lock() = Some(FsError::Quota);
    writer.write(100, b"abc", now()).unwrap();
    assert_eq!(data.flush(INO), Err(FsError::Quota));
    assert!(data.settle(Duration::from_mins(1)));
    volume.check(&data);
}

#[test]
fn a_long_compaction_is_given_up_at_the_end() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    let step = u64::from(BLOCK) * 4;
    for n in 0..6u64 {
        writer.write(n * step, &[n as u8; BLOCK as usize], now()).unwrap();
        writer.flush().unwrap();
    }
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    let before = volume.store.faults.begun_puts.load(Ordering::SeqCst);
    read_all(&data, INO, 0, 10, 6 * step).unwrap();
    eventually("the new slice is written", || volume.store.faults.begun_puts.load(Ordering::SeqCst) > before);
    assert!(!data.settle(Duration::ZERO), "the store has not answered");
    volume.store.release();
    assert!(data.settle(Duration::from_mins(1)));
    volume.check(&data);
    assert_eq!(volume.index.records().len(), 6);
}

#[test]
fn memory_stays_within_twice_the_budget_while_the_store_hangs() {
    let volume = Volume::default();
    let config = small(BLOCK);
    let data = Arc::new(volume.open(&config));
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    let writing: Vec<_> = (0..4u64)
        .map(|n| {
            let data = Arc::clone(&data);
            std::thread::spawn(move || {
                let (writer, piece) = (data.writer(Ino(n)), bytes(n, 16 << 10));
                for at in 0..64 {
                    writer.write(at * piece.len() as u64, &piece, now()).unwrap();
                }
                writer.flush().unwrap();
            })
        })
        .collect();
    let most = 2 * config.buffer_size;
    eventually("writers are stopped", || data.buffered().0 >= most);
    assert!(writing.iter().all(|thread| !thread.is_finished()), "four times the budget cannot be taken");
    volume.store.release();
    for thread in writing {
        thread.join().unwrap();
    }
    let (used, peak) = data.buffered();
    // Each writer is let in below the limit and may then take one write, buffers rounded up to
    // blocks.
    assert!(peak <= most + 4 * (32 << 10), "{peak} of {most}");
    assert_eq!(used, 0);
    for n in 0..4u64 {
        let piece = bytes(n, 16 << 10);
        assert!(read_all(&data, Ino(n), 63 << 14, 16 << 10, 1 << 20).unwrap() == piece);
    }
    volume.check(&data);
}

#[test]
fn random_small_writes_share_slices_and_objects() {
    let volume = Volume::default();
    let config = DataConfig { buffer_size: 64 << 20, auto_compact: false, ..small(1 << 20) };
    let data = volume.open(&config);
    let writer = data.writer(INO);
    let mut rng = Rng::seeded(5);
    for _ in 0..2000 {
        writer.write(rng.below(1000) * 8192, &[1; 4096], now()).unwrap();
    }
    writer.flush().unwrap();
    let puts = volume.store.faults.puts.load(Ordering::Relaxed);
    assert!(puts <= 5, "{puts} objects for at most 4 MB in blocks of 1 MB");
    assert_eq!(volume.index.commits.load(Ordering::Relaxed), 1);
    volume.check(&data);
}

#[test]
fn readers_never_fail_while_chunks_are_compacted() {
    let volume = Volume::default();
    let data = Arc::new(volume.open(&DataConfig { auto_compact: false, ..small(BLOCK) }));
    let content = bytes(3, 60_000);
    let stop = Arc::new(AtomicBool::new(false));
    data.writer(INO).write(0, &content, now()).unwrap();
    data.flush(INO).unwrap();
    let readers: Vec<_> = (0..2)
        .map(|n| {
            let (data, stop, content, volume) =
                (Arc::clone(&data), Arc::clone(&stop), content.clone(), volume.clone());
            std::thread::spawn(move || {
                let mut rng = Rng::seeded(n);
                while !stop.load(Ordering::Relaxed) {
                    // A client without caches, that has to ask the store.
                    let other = volume.open(&DataConfig { auto_compact: false, ..small(BLOCK) });
                    for reader in [data.reader(INO), other.reader(INO)] {
                        let from = rng.below(50_000) as usize;
                        let read =
                            reader.read(from as u64, 10_000, 60_000, &Interrupt::never()).unwrap().concat();
                        assert!(read == content[from..from + 10_000]);
                    }
                }
            })
        })
        .collect();
    let mut rng = Rng::seeded(77);
    for _ in 0..40 {
        for _ in 0..6 {
            let from = rng.below(59_000) as usize;
            data.writer(INO).write(from as u64, &content[from..from + 1000], now()).unwrap();
            data.flush(INO).unwrap();
        }
        assert!(data.compact(INO, 0).unwrap());
        for (id, size) in volume.index.garbage() {
            data.delete_slice(id, size).unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(volume.index.records().len(), 1);
    volume.check(&data);
}

#[test]
fn a_slice_is_read_that_was_compacted_before_its_commit_was_known_here() {
    let volume = Volume::default();
    let config = DataConfig { flush_idle: Duration::from_millis(1), auto_compact: false, ..small(BLOCK) };
    let data = volume.open(&config);
    let writer = data.writer(INO);
    writer.write(0, &[1; 100], now()).unwrap();
    writer.flush().unwrap();
    let held = volume.index.hold_answers.lock();
    writer.write(100, &[2; 100], now()).unwrap();
    eventually("the second write is in the records", || volume.index.records().len() == 2);
    assert!(data.compact(INO, 0).unwrap());
    for (id, size) in volume.index.garbage() {
        data.delete_slice(id, size).unwrap();
    }
    let gets = volume.store.faults.gets.load(Ordering::Relaxed);
    let read = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&data, INO, 100, 100, 200));
        eventually("the read looks for the block", || {
            volume.store.faults.gets.load(Ordering::Relaxed) > gets
        });
        drop(held);
        reading.join().unwrap()
    });
    assert_eq!(read.unwrap(), [2; 100]);
}

#[test]
fn many_records_are_compacted_as_they_come() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    for n in 0..700u64 {
        writer.write(n * 100, &[n as u8; 50], now()).unwrap();
        writer.flush().unwrap();
    }
    eventually("the chunk is compacted", || volume.index.records().len() < 400);
    for n in 0..700u64 {
        let mut expected = vec![n as u8; 50];
        expected.resize(100, 0);
        assert_eq!(read_all(&data, INO, n * 100, 100, 1 << 20).unwrap(), expected);
    }
}

#[test]
fn a_chunk_of_very_many_records_gets_no_more_while_another_compaction_is_at_it() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    let mut written = 0u64;
    let mut write = |pieces: u64| {
        for n in written..written + pieces {
            writer.write(n * 100, &[n as u8; 50], now()).unwrap();
        }
        written += pieces;
        writer.flush().unwrap();
        // As many as fit into a record of MySQL.
        assert!(volume.index.records().len() < 2730, "{} records", volume.index.records().len());
    };
    let held = volume.index.hold_first_replacement.lock();
    write(500);
    eventually("a compaction begins", || volume.index.replacements.load(Ordering::SeqCst) > 0);
    (0..6).for_each(|_| write(900));
    drop(held);
    for n in 0..written {
        let mut expected = vec![n as u8; 50];
        expected.resize(100, 0);
        assert_eq!(read_all(&data, INO, n * 100, 100, 1 << 20).unwrap(), expected);
    }
}

#[test]
fn a_chunk_without_room_is_compacted_before_more_is_added() {
    let volume = Volume::default();
    volume.index.most.store(2730, Ordering::Relaxed);
    // Another client was faster, and this one has not seen it.
    volume.index.fill(INO, 2000);
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    for n in 0..1000u64 {
        writer.write(n * 100, &[n as u8; 50], now()).unwrap();
    }
    writer.flush().unwrap();
    let left = volume.index.records().len();
    assert!((1000..1100).contains(&left) || left < 10, "{left} records");
    for n in 0..1000 {
        let mut expected = vec![n as u8; 50];
        expected.resize(100, 0);
        assert_eq!(read_all(&data, INO, n * 100, 100, 1 << 20).unwrap(), expected);
    }
}

#[test]
fn staged_blocks_survive_a_crash() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let content = bytes(4, 30_000);
    let data = volume.open(&written_back(dir.path()));
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    data.writer(INO).write(0, &content, now()).unwrap();
    data.writer(INO).fsync(|| true).unwrap();
    assert!(volume.store.keys().is_empty(), "acknowledged before any upload");
    assert!(read_all(&data, INO, 0, 30_000, 30_000).unwrap() == content);
    assert!(data.flush_staging(Duration::from_millis(1)) > 0);
    drop(data);
    volume.store.release();
    // The next mount may do without write-back: what is staged counts all the same.
    let data = volume.open(&cached(dir.path()));
    assert!(read_all(&data, INO, 0, 30_000, 30_000).unwrap() == content);
    assert_eq!(data.flush_staging(Duration::from_mins(1)), 0);
    drop(data);
    let elsewhere = volume.open(&small(BLOCK));
    assert!(read_all(&elsewhere, INO, 0, 30_000, 30_000).unwrap() == content);
    volume.check(&elsewhere);
    assert!(files(&dir.path().join("a-volume/rawstaging")).is_empty());
}

#[test]
fn an_uploaded_block_stays_in_the_cache_directory_where_it_was_staged() {
    let (volume, places) = (Volume::default(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
    let mut config = written_back(places[0].path());
    config.cache.dirs = places.iter().map(|place| place.path().to_owned()).collect();
    let data = volume.open(&config);
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    let inodes: Vec<Ino> = (0..12).map(|n| Ino(100 + n)).collect();
    for ino in &inodes {
        data.writer(*ino).write(0, &bytes(ino.0, 3000), now()).unwrap();
        data.writer(*ino).fsync(|| true).unwrap();
    }
    let names = |place: &tempfile::TempDir, below: &str| {
        let found = files(&place.path().join("a-volume").join(below));
        let mut names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let staged: Vec<_> = places.iter().map(|place| names(place, "rawstaging")).collect();
    assert_eq!(staged.iter().map(Vec::len).sum::<usize>(), 12);
    volume.store.release();
    assert_eq!(data.flush_staging(Duration::from_mins(1)), 0);
    // Other disks could not have taken them over.
    let kept: Vec<_> = places.iter().map(|place| names(place, "raw")).collect();
    assert_eq!(kept, staged);
}

#[test]
fn a_damaged_staged_block_is_set_aside_and_never_uploaded() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let staging = dir.path().join("a-volume/rawstaging");
    let data = volume.open(&written_back(dir.path()));
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    data.writer(INO).write(0, &bytes(5, 3000), now()).unwrap();
    data.flush(INO).unwrap();
    drop(data);
    let file = files(&staging).remove(0);
    let mut raw = fs::read(&file).unwrap();
    raw[100] ^= 1;
    fs::write(&file, raw).unwrap();
    volume.store.release();
    // The upload of the client that is gone may still have been under way; it had the right bytes.
    for key in volume.store.keys() {
        futures::executor::block_on(sluice_object::ObjectStore::delete(&volume.store, &key)).unwrap();
    }
    let data = volume.open(&written_back(dir.path()));
    assert_eq!(data.flush_staging(Duration::from_mins(1)), 0);
    assert!(files(&staging)[0].to_string_lossy().ends_with(".damaged"));
    assert!(read_all(&data, INO, 0, 3000, 3000).is_err());
}

#[test]
fn a_staged_block_whose_file_goes_is_told_of_unless_the_store_has_it() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let staging = dir.path().join("a-volume/rawstaging");
    let later = WritebackConfig { upload_delay: Duration::from_hours(1), ..WritebackConfig::default() };
    let data = volume.open(&DataConfig { writeback: Some(later), ..written_back(dir.path()) });
    let other = Ino(INO.0 + 1);
    let bystander = data.open_writer(other);
    let stage = || {
        data.writer(INO).write(0, &bytes(5, 3000), now()).unwrap();
        data.flush(INO).unwrap();
        files(&staging).remove(0)
    };
    // Another mount on this machine took it up.
    let file = stage();
    let key = file.strip_prefix(&staging).unwrap().to_str().unwrap().to_owned();
    let put = sluice_object::ObjectStore::put(&volume.store, &key, bytes(5, 3000).into());
    futures::executor::block_on(put).unwrap();
    fs::remove_file(file).unwrap();
    data.writer(INO).fsync(|| true).unwrap();
    bystander.fsync(|| true).unwrap();

    fs::remove_file(stage()).unwrap();
    bystander.fsync(|| false).expect_err("of which nobody hears");
    data.writer(INO).fsync(|| true).unwrap_err();
    bystander.fsync(|| true).expect_err("each is told that something was lost");
    bystander.fsync(|| true).unwrap();
    data.open_writer(other).fsync(|| true).expect("it was told before that was opened");

    // What an earlier process left torn was promised to nobody who is here.
    let file = stage();
    drop(data);
    fs::write(file, b"torn").unwrap();
    let data = volume.open(&written_back(dir.path()));
    assert_eq!(data.flush_staging(Duration::from_mins(1)), 0, "nobody waits for it");
    data.open_writer(other).fsync(|| true).unwrap();
}

#[test]
fn who_waits_for_his_turn_at_a_dead_store_gives_up_with_the_others() {
    let volume = Volume::default();
    let config = DataConfig { max_uploads: 1, give_up: Duration::from_millis(300), ..small(BLOCK) };
    let data = volume.open(&config);
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    data.writer(INO).write(0, &bytes(7, 20 * BLOCK as usize), now()).unwrap();
    let files: Vec<_> = (1..4).map(|n| Ino(INO.0 + n)).collect();
    for ino in &files {
        data.writer(*ino).write(0, b"abc", now()).unwrap();
    }
    std::thread::scope(|scope| {
        let flush = |ino: &Ino| data.flush(*ino);
        let waiting: Vec<_> = files.iter().map(|ino| scope.spawn(move || flush(ino))).collect();
        eventually("those who wait are told", || waiting.iter().filter(|one| one.is_finished()).count() >= 2);
        volume.store.release();
        let reported = waiting.into_iter().map(|one| one.join().unwrap()).filter(Result::is_err).count();
        assert!(reported >= 2, "{reported}");
    });
}

#[test]
fn a_staging_directory_that_breaks_means_direct_uploads() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let data = volume.open(&written_back(dir.path()));
    fs::remove_dir_all(dir.path().join("a-volume")).unwrap();
    fs::write(dir.path().join("a-volume"), b"a file where a directory should be").unwrap();
    data.writer(INO).write(0, b"abc", now()).unwrap();
    data.writer(INO).fsync(|| true).unwrap();
    assert_eq!(volume.store.keys().len(), 1);
    assert_eq!(read_all(&data, INO, 0, 3, 3).unwrap(), b"abc");
}

#[test]
fn damaged_cache_files_are_fetched_again() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let content = bytes(6, 10_000);
    let writer = volume.open(&small(BLOCK));
    writer.writer(INO).write(0, &content, now()).unwrap();
    writer.flush(INO).unwrap();
    let raw = dir.path().join("a-volume/raw");
    let breakages: [fn(&Path); 4] = [
        |path| {
            let mut raw = fs::read(path).unwrap();
            raw[7] ^= 0x40;
            fs::write(path, raw).unwrap();
        },
        |path| fs::File::options().write(true).open(path).unwrap().set_len(5).unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, b"").unwrap(),
    ];
    // A write that was under way when its store was dropped may leave a file that is no block.
    let stored = || files(&raw).into_iter().filter(|path| path.extension().is_none());
    let blocks = || stored().count();
    for breakage in breakages {
        let data = volume.open(&cached(dir.path()));
        assert!(read_all(&data, INO, 0, 10_000, 10_000).unwrap() == content);
        eventually("blocks are cached", || blocks() == 3);
        drop(data);
        stored().for_each(|path| breakage(&path));
        let data = volume.open(&cached(dir.path()));
        eventually("the directory is scanned", || blocks() as u64 == data.stats().cache_blocks.get());
        for from in [0, 5, 4096, 9999] {
            assert!(read_all(&data, INO, from, 10_000, 10_000).unwrap() == content[from as usize..]);
        }
        drop(data);
        remove(&raw);
    }
}

#[test]
fn a_cache_that_is_full_or_gone_costs_nothing_but_speed() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let content = bytes(8, 100_000);
    let mut config = cached(dir.path());
    config.cache.size = 40_000;
    let data = volume.open(&config);
    data.writer(INO).write(0, &content, now()).unwrap();
    data.flush(INO).unwrap();
    for round in 0..3 {
        let other = volume.open(&config);
        assert!(read_all(&other, INO, 0, 100_000, 100_000).unwrap() == content);
        let stats = other.stats();
        eventually("all are cached or dropped", || {
            stats.cache_writes.get() + stats.cache_drops.get() + stats.cache_hits.get() >= 20
        });
        assert!(stats.cache_bytes.get() <= 40_000, "round {round}: {}", stats.cache_bytes.get());
        remove(&dir.path().join("a-volume"));
        assert!(read_all(&other, INO, 0, 100_000, 100_000).unwrap() == content);
    }
}

#[test]
fn only_the_last_commit_of_a_flush_says_that_it_is_the_last() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.writer(INO);
    for chunk in 0..3 {
        writer.write(chunk * CHUNK_SIZE, b"data", now()).unwrap();
    }
    data.flush(INO).unwrap();
    writer.write(0, b"more", now()).unwrap();
    data.flush(INO).unwrap();
    assert_eq!(*volume.index.lasts.lock(), [false, false, true, true]);
    // What was not stored makes the data after it incomplete.
    for chunk in 0..2 {
        writer.write(chunk * CHUNK_SIZE, b"data", now()).unwrap();
    }
    *volume.index.refuse.lock() = Some(FsError::Quota);
    assert_eq!(data.flush(INO), Err(FsError::Quota));
    assert_eq!(volume.index.lasts.lock()[4..], [false]);
}

#[test]
fn a_small_read_of_a_large_block_asks_for_little() {
    let volume = Volume::default();
    let content = bytes(9, 1 << 20);
    let config = DataConfig { prefetch: 0, buffer_size: 16 << 20, ..small(1 << 20) };
    let data = volume.open(&config);
    data.writer(INO).write(0, &content, now()).unwrap();
    data.flush(INO).unwrap();
    let cold = volume.open(&config);
    assert!(read_all(&cold, INO, 500_000, 4096, 1 << 20).unwrap() == content[500_000..504_096]);
    assert_eq!(volume.store.faults.get_bytes.load(Ordering::Relaxed), 4096);
    let keen = volume.open(&DataConfig { prefetch: 1, ..config });
    assert!(read_all(&keen, INO, 500_000, 4096, 1 << 20).unwrap() == content[500_000..504_096]);
    assert_eq!((keen.stats().get_bytes.get(), keen.stats().prefetches.get()), (4096, 0), "one read");
    assert!(read_all(&keen, INO, 700_000, 4096, 1 << 20).unwrap() == content[700_000..704_096]);
    eventually("the block is fetched", || keen.stats().get_bytes.get() >= 1 << 20);
}

#[test]
fn blocks_are_warmed_up_and_evicted() {
    let (volume, dir) = (Volume::default(), tempfile::tempdir().unwrap());
    let plain = volume.open(&small(BLOCK));
    plain.writer(INO).write(0, &bytes(10, 10_000), now()).unwrap();
    plain.flush(INO).unwrap();
    let record = volume.index.records()[0];
    let blocks: Vec<BlockKey> = plain.layout().parts(record).map(|part| part.block).collect();
    let (last, never) = (blocks[blocks.len() - 1], Interrupt::never());
    let asked = |data: &DataStore| data.stats().gets.get();
    let data = volume.open(&cached(dir.path()));
    for block in &blocks {
        assert_eq!(data.location(*block), None);
        assert!(data.warm(*block, &never).unwrap());
        assert!(data.warm(*block, &never).unwrap(), "it is there");
        assert!(data.location(*block).is_some_and(|place| place.starts_with(dir.path())));
    }
    assert_eq!(asked(&data), blocks.len() as u64);
    assert_eq!(data.stats().cache_writes.get(), blocks.len() as u64, "each was written once");
    assert_eq!((data.stats().cache_misses.get(), data.stats().memory_bytes.get()), (0, 0), "nobody read it");
    data.evict(last);
    assert!(data.location(last).is_none() && data.location(blocks[0]).is_some());

    assert!(plain.warm(last, &never).unwrap());
    assert_eq!(plain.location(last), Some(Path::new("memory")));

    let full = CacheConfig { size: 1, ..cached(dir.path()).cache };
    let full = volume.open(&DataConfig { volume: "other".into(), cache: full, ..small(BLOCK) });
    assert!(!full.warm(last, &never).unwrap(), "no room");
    let gone = BlockKey { id: 999, ..last };
    assert!(matches!(data.warm(gone, &never), Err(WarmError::Missing(_))));
}

#[test]
fn the_time_of_the_last_write_is_committed() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    for n in 1..=3 {
        data.writer(INO).write(0, b"abc", Time::from_nanos(n)).unwrap();
    }
    assert_eq!(data.dirty_end(INO), 3);
    data.flush(INO).unwrap();
    assert_eq!((volume.index.mtime(INO), volume.index.length(INO)), (Some(Time::from_nanos(3)), 3));
    assert_eq!(data.dirty_end(INO), 0);
}

/// A fresh file of `len` random bytes, stored by another client.
fn stored(volume: &Volume, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let (data, content) = (volume.open(&small(BLOCK)), bytes(ino.0, len));
    data.writer(ino).write(offset, &content, now()).unwrap();
    data.flush(ino).unwrap();
    content
}

#[test]
fn what_is_read_ahead_neither_fails_a_read_nor_holds_it_up() {
    for away in [false, true] {
        let volume = Volume::default();
        let start = CHUNK_SIZE - (64 << 10);
        let content = stored(&volume, INO, start, 64 << 10);
        let (index, data) = (&volume.index, volume.open(&small(BLOCK)));
        let reader = data.reader(INO);
        let first = reader.read(start, 4096, CHUNK_SIZE, &never()).unwrap().concat();
        assert!(first == content[..4096]);
        index.known.lock().remove(&(INO, 1));
        index.away.store(away, Ordering::SeqCst);
        index.damaged.lock().insert(1);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                for at in (4096..64 << 10).step_by(4096) {
                    let read = reader.read(start + at as u64, 4096, 2 * CHUNK_SIZE, &never());
                    assert!(read.unwrap().concat() == content[at..at + 4096]);
                }
            });
            eventually("the next chunk is looked up", || {
                !away || reading.is_finished() || index.asking.load(Ordering::SeqCst) > 0
            });
            eventually("all of this chunk is read", || reading.is_finished());
            index.away.store(false, Ordering::SeqCst);
        });
        assert_eq!(reader.read(CHUNK_SIZE, 4096, 2 * CHUNK_SIZE, &never()), Err(FsError::io("")));
    }
}

#[test]
fn streams_share_the_memory_for_what_they_read_ahead() {
    let volume = Volume::default();
    let inos: Vec<Ino> = (20..24).map(Ino).collect();
    let contents: Vec<_> = inos.iter().map(|ino| stored(&volume, *ino, 0, 64 * BLOCK as usize)).collect();
    // Room for some 20 blocks; alone, each would read 8 ahead.
    let data = volume.open(&DataConfig { buffer_size: 64 * u64::from(BLOCK), ..small(BLOCK) });
    let readers: Vec<_> = inos.iter().map(|ino| data.reader(*ino)).collect();
    let step = BLOCK as usize / 2;
    for at in (0..64 * BLOCK as usize).step_by(step) {
        for (reader, content) in readers.iter().zip(&contents) {
            let read = reader.read(at as u64, step as u32, content.len() as u64, &never()).unwrap();
            assert!(read.concat() == content[at..at + step]);
        }
    }
    let gets = volume.store.faults.gets.load(Ordering::Relaxed);
    // Which block goes is a matter of timing now and then.
    assert!((256..=272).contains(&gets), "{gets} fetches of 256 blocks");
}

#[test]
fn a_panic_below_is_an_error_and_no_hang() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let writer = data.open_writer(INO);
    // The last block goes up on the caller's thread, the others do not.
    for len in [100, 10 * BLOCK as usize] {
        let content = bytes(len as u64, len);
        volume.index.panics.store(1, Ordering::SeqCst);
        writer.write(0, &content, now(), &never()).unwrap();
        assert_eq!(writer.fsync(|| true), Err(FsError::io("")));
        volume.store.faults.panics.store(1, Ordering::SeqCst);
        writer.write(0, &content, now(), &never()).unwrap();
        assert_eq!(writer.fsync(|| true), Err(FsError::io("")));
        assert_eq!(volume.store.faults.panics.load(Ordering::SeqCst), 0);
        writer.write(0, &content, now(), &never()).unwrap();
        writer.fsync(|| true).unwrap();
        assert!(read_all(&data, INO, 0, len as u32, len as u64).unwrap() == content);
    }
}

#[test]
fn a_panic_in_the_background_is_told_and_the_next_data_is_stored() {
    let volume = Volume::default();
    let data = volume.open(&DataConfig { flush_idle: Duration::from_millis(1), ..small(BLOCK) });
    // More than there are threads that commit.
    for n in 0..20 {
        volume.index.panics.store(1, Ordering::SeqCst);
        data.writer(INO).write(0, b"lost", now()).unwrap();
        eventually("the commit fails", || data.stats().commit_errors.get() == n + 1);
        assert_eq!(data.writer(INO).flush(), Err(FsError::io("")));
    }
    data.writer(INO).write(0, b"kept", now()).unwrap();
    eventually("it is stored", || volume.index.records().len() == 1);
}

#[test]
fn with_the_metadata_away_nobody_waits_for_ids_with_a_file_locked() {
    let volume = Volume::default();
    let data = volume.open(&DataConfig { flush_idle: Duration::from_millis(1), ..small(BLOCK) });
    let writer = data.open_writer(INO);
    writer.write(0, &[1; BLOCK as usize], now(), &never()).unwrap();
    writer.flush().unwrap();
    assert_eq!(read_all(&data, INO, 0, 10, 10).unwrap(), [1; 10]);
    volume.index.away.store(true, Ordering::SeqCst);
    let interrupt = Interrupt::default();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (1..1000).try_for_each(|n| {
                writer.write(n * 2 * u64::from(BLOCK), &[2; BLOCK as usize], now(), &interrupt)
            })
        });
        eventually("ids are asked for", || volume.index.asking.load(Ordering::SeqCst) > 0);
        let looking = scope.spawn(|| {
            let read = read_all(&data, INO, 0, 10, 10).unwrap();
            (data.dirty_end(INO), read)
        });
        eventually("the file can be looked at", || looking.is_finished());
        assert_eq!(looking.join().unwrap().1, [1; 10]);
        interrupt.set();
        assert_eq!(writing.join().unwrap(), Err(FsError::Interrupted));
    });
    volume.index.away.store(false, Ordering::SeqCst);
    writer.fsync(|| true).unwrap();
    assert_eq!(read_all(&data, INO, 2 * u64::from(BLOCK), 10, 1 << 20).unwrap(), [2; 10]);
    volume.check(&data);
}

#[test]
fn a_read_that_nobody_waits_for_ends_and_others_get_the_block() {
    let volume = Volume::default();
    let content = stored(&volume, INO, 0, BLOCK as usize);
    let data = volume.open(&small(BLOCK));
    let faults = &volume.store.faults;
    faults.hold_gets.store(true, Ordering::SeqCst);
    let interrupts = [Interrupt::default(), Interrupt::default()];
    let read = |interrupt: &Interrupt| data.reader(INO).read(0, BLOCK, BLOCK.into(), interrupt);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(&interrupts[0]));
        eventually("the block is asked for", || faults.gets.load(Ordering::SeqCst) > 0);
        let second = scope.spawn(|| read(&interrupts[1]));
        let third = scope.spawn(|| read(&never()));
        for (reading, interrupt) in [(first, &interrupts[0]), (second, &interrupts[1])] {
            interrupt.set();
            eventually("the read ends", || reading.is_finished());
            assert_eq!(reading.join().unwrap(), Err(FsError::Interrupted));
        }
        faults.hold_gets.store(false, Ordering::SeqCst);
        assert!(third.join().unwrap().unwrap().concat() == content);
    });
}

#[test]
fn a_write_that_nobody_waits_for_is_not_taken() {
    let volume = Volume::default();
    let config = small(BLOCK);
    let data = volume.open(&config);
    let (writer, interrupt) = (data.open_writer(INO), Interrupt::default());
    volume.store.faults.hold_puts.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut at = 0;
            while writer.write(at, &[1; BLOCK as usize], now(), &interrupt).is_ok() {
                at += u64::from(BLOCK);
            }
            at
        });
        eventually("the writer is stopped", || data.buffered().0 >= 2 * config.buffer_size);
        interrupt.set();
        eventually("the write ends", || writing.is_finished());
        let written = writing.join().unwrap();
        assert_eq!(data.dirty_end(INO), written);
        assert_eq!(writer.fsync(|| false), Err(FsError::Interrupted), "nor does an fsync wait for ever");
        volume.store.release();
        writer.fsync(|| true).unwrap();
        assert_eq!(volume.index.length(INO), written);
    });
}

#[test]
fn a_full_store_is_told_at_once_and_one_that_denies_access_is_a_delay() {
    let volume = Volume::default();
    let data = volume.open(&small(BLOCK));
    let (writer, faults) = (data.writer(INO), &volume.store.faults);
    faults.full.store(1, Ordering::SeqCst);
    writer.write(0, b"lost", now()).unwrap();
    assert_eq!(writer.flush(), Err(FsError::NoSpace));
    faults.denied.store(3, Ordering::SeqCst);
    writer.write(0, b"kept", now()).unwrap();
    writer.flush().unwrap();
    assert_eq!(faults.denied.load(Ordering::SeqCst), 0);
    assert_eq!(read_all(&data, INO, 0, 4, 4).unwrap(), b"kept");
}
