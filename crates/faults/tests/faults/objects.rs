//! The object store fails for a while, or for longer than anybody waits; what it holds is damaged.

use std::time::{Duration, Instant};

use sluice_faults::{
    check,
    store::Outage,
    volume::{Mount, Volume},
};
use sluice_types::{FsError, Rng};

use crate::ROOT;

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::seeded(seed).fill(&mut bytes);
    bytes
}

/// A volume on SQLite, and the directory that holds it.
pub(crate) fn sqlite() -> (tempfile::TempDir, Volume) {
    let dir = tempfile::tempdir().unwrap();
    let volume = Volume::format(format!("sqlite3://{}/meta.db", dir.path().display()));
    (dir, volume)
}

/// Writes, fsyncs and reads back while the store is broken until `heal`.
fn delayed(outage: Outage) {
    let (_dir, volume) = sqlite();
    let client = volume.mount();
    let old = bytes(1, 200_000);
    let ino = client.put(ROOT, "old", &old).unwrap();
    volume.store.set(outage);
    let puts = volume.store.puts();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| client.put(ROOT, "new", &bytes(2, 300_000)));
        // A client without anything in its caches.
        let reading = scope.spawn(|| volume.mount().get(ino));
        sluice_faults::eventually("both meet the outage", || {
            volume.store.gets() >= 2 && volume.store.puts() >= puts + 2
        });
        assert!(!writing.is_finished() && !reading.is_finished(), "an outage is a delay");
        volume.store.set(Outage::None);
        writing.join().unwrap().unwrap();
        assert!(reading.join().unwrap().unwrap() == old);
    });
    client.vfs.close(None).unwrap();
    let later = volume.mount();
    let new = later.lookup(ROOT, "new").unwrap().ino;
    assert!(later.get(new).unwrap() == bytes(2, 300_000));
    check::assert_sound(&volume, &volume.url, later.vfs.data().layout(), &format!("{outage:?}"));
}

#[test]
fn errors_of_the_store_are_a_delay() {
    delayed(Outage::Errors);
}

#[test]
fn silence_of_the_store_is_a_delay() {
    delayed(Outage::Silence);
}

#[test]
fn lost_answers_of_the_store_are_a_delay() {
    delayed(Outage::LostAnswers);
}

#[test]
fn thirty_seconds_of_errors_are_a_delay() {
    let (_dir, volume) = sqlite();
    let client = volume.mount();
    let begun = Instant::now();
    let outage = Duration::from_secs(30);
    volume.store.fail_for(outage);
    std::thread::scope(|scope| {
        let files: Vec<_> = (0..4_u64)
            .map(|file| {
                let client = &client;
                scope.spawn(move || client.put(ROOT, &format!("f{file}"), &bytes(file, 200_000)))
            })
            .collect();
        for file in files {
            file.join().unwrap().unwrap();
        }
    });
    assert!(begun.elapsed() >= outage && volume.store.failed() > 4);
    client.vfs.close(None).unwrap();
    let later = volume.mount();
    for file in 0..4 {
        let ino = later.lookup(ROOT, &format!("f{file}")).unwrap().ino;
        assert!(later.get(ino).unwrap() == bytes(file, 200_000));
    }
    check::assert_sound(&volume, &volume.url, later.vfs.data().layout(), "after 30 s");
}

#[test]
fn an_outage_longer_than_the_timeout_is_reported_and_passes() {
    let (_dir, volume) = sqlite();
    let mut mount = Mount::default();
    mount.data.give_up = Duration::from_secs(1);
    let client = volume.mount_with(&volume.url, &mount);
    // The layer below waits longer than the data path; refusals for good do not wait at all.
    volume.store.fail_for(Duration::from_mins(10));
    let (ino, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, &bytes(1, 1000)).unwrap();
    let flushing = std::thread::spawn({
        let (vfs, never) = (std::sync::Arc::clone(&client.vfs), client.never.clone());
        move || vfs.fsync(&never, opened.fh)
    });
    sluice_faults::eventually("the store was asked", || volume.store.failed() > 2);
    volume.store.set(Outage::None);
    flushing.join().unwrap().unwrap();
    client.close(opened.fh).unwrap();
    assert!(client.get(ino).unwrap() == bytes(1, 1000));
}

/// Damages all objects and reads by a client that has cached nothing.
fn damaged(volume: &Volume, mount: &Mount, change: impl Fn(&mut Vec<u8>)) {
    let content = [vec![7; 100_000], bytes(3, 100_000)].concat();
    let client = volume.mount_with(&volume.url, mount);
    let ino = client.put(ROOT, "f", &content).unwrap();
    client.vfs.close(None).unwrap();
    let fresh = volume.mount_with(&volume.url, mount);
    assert!(fresh.get(ino).unwrap() == content, "it can be read before");
    fresh.vfs.close(None).unwrap();
    assert!(volume.store.damage(change) >= 4);
    let fresh = volume.mount_with(&volume.url, mount);
    let error = fresh.get(ino).unwrap_err();
    assert_eq!(error, FsError::io(""));
    let context = error.to_string();
    assert!(context.contains("chunks/0/0/") && context.contains("damaged"), "it names the object: {context}");
    let opened = fresh.open(ino).unwrap();
    for offset in [0, 70_000, 150_000, 199_999_usize] {
        match fresh.read(opened.fh, offset as u64, 1) {
            Ok(read) => assert_eq!(read, content[offset..=offset], "a byte that is there still"),
            Err(error) => assert_eq!(error, FsError::io("")),
        }
    }
}

fn flip(stored: &mut [u8]) {
    let middle = stored.len() / 2;
    stored[middle] ^= 0x10;
}

fn truncate(stored: &mut Vec<u8>) {
    stored.truncate(stored.len() * 2 / 3);
}

fn compressed(compression: sluice_object::Compression, change: impl Fn(&mut Vec<u8>)) {
    let (_dir, volume) = sqlite();
    let mut mount = Mount::default();
    mount.data.compression = compression;
    damaged(&volume, &mount, change);
}

#[test]
fn truncated_objects_are_refused_whatever_the_compression() {
    use sluice_object::Compression;
    compressed(Compression::None, truncate);
    compressed(Compression::Lz4, truncate);
    compressed(Compression::Zstd, truncate);
}

#[test]
fn empty_and_overlong_objects_are_refused() {
    use sluice_object::Compression;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        compressed(compression, Vec::clear);
    }
    compressed(Compression::Lz4, |stored| stored.extend_from_slice(b"more"));
    compressed(Compression::Zstd, |stored| stored.extend_from_slice(b"more"));
}

fn encrypted() -> (tempfile::TempDir, Volume) {
    let (dir, mut volume) = sqlite();
    volume.key = Some(include_str!("../../../object/tests/data/keys/pkcs8.pem").into());
    (dir, volume)
}

#[test]
fn encrypted_objects_that_changed_are_refused() {
    for at in [0, 5, 100, 300, 1000] {
        let (_dir, volume) = encrypted();
        damaged(&volume, &Mount::default(), |stored| {
            let at = at.min(stored.len() - 1);
            stored[at] ^= 1;
        });
    }
    let (_dir, volume) = encrypted();
    damaged(&volume, &Mount::default(), truncate);
    let (_dir, volume) = encrypted();
    damaged(&volume, &Mount::default(), |stored| flip(stored));
}
