//! Full volumes, full cache disks, and files that outlive their names.

use std::time::Duration;

use sluice_data::CacheConfig;
use sluice_faults::{
    check::{self, Records},
    volume::{HEARTBEAT, Mount, Volume, engine},
};
use sluice_testkit::disk::SmallDisk;
use sluice_types::FsError;

use crate::{ROOT, fencing::Sink, objects::sqlite};

fn sound(volume: &Volume, context: &str) {
    let layout = volume.mount_with(&volume.url, &Mount::default()).vfs.data().layout();
    check::assert_sound(volume, &volume.url, layout, context);
}

#[test]
fn a_write_that_the_volume_has_no_room_for_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite3://{}/meta.db", dir.path().display());
    let volume = Volume::format_with(url, |format| format.capacity = 1 << 20);
    let (one, two) = (volume.mount(), volume.mount());
    let (first, a) = one.create(ROOT, "a").unwrap();
    let (second, b) = two.create(ROOT, "b").unwrap();
    // Neither knows of what the other has written when it takes the data.
    one.write(a.fh, 0, &vec![1; 700_000]).unwrap();
    two.write(b.fh, 0, &vec![2; 700_000]).unwrap();
    one.vfs.fsync(&one.never, a.fh).unwrap();
    two.beat().unwrap();
    assert_eq!(two.vfs.fsync(&two.never, b.fh), Err(FsError::NoSpace));
    two.close(b.fh).unwrap();
    assert_eq!(two.get(second).unwrap(), b"");
    one.close(a.fh).unwrap();
    assert!(one.get(first).unwrap() == vec![1; 700_000]);
    let blocks = 700_000_usize.div_ceil(64 << 10);
    sluice_faults::eventually("the blocks of the failed write go", || volume.store.keys().len() == blocks);
    one.unlink(ROOT, "a").unwrap();
    two.beat().unwrap();
    two.put(ROOT, "c", &vec![3; 700_000]).unwrap();
    one.vfs.close(None).unwrap();
    two.vfs.close(None).unwrap();
    sluice_faults::eventually("the blocks of the removed file go", || volume.store.keys().len() == blocks);
    sound(&volume, "full");
}

#[test]
fn a_volume_without_inodes_left_makes_no_more_files() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite3://{}/meta.db", dir.path().display());
    let volume = Volume::format_with(url, |format| format.inodes = 5);
    let client = volume.mount();
    for number in 0..5 {
        client.put(ROOT, &format!("f{number}"), b"x").unwrap();
    }
    assert_eq!(client.create(ROOT, "more").map(drop), Err(FsError::NoSpace));
    assert_eq!(client.mkdir(ROOT, "more").map(drop), Err(FsError::NoSpace));
    let ino = client.lookup(ROOT, "f0").unwrap().ino;
    client.link(ino, ROOT, "a link takes none").unwrap();
    client.unlink(ROOT, "f1").unwrap();
    client.mkdir(ROOT, "more").unwrap();
    client.vfs.close(None).unwrap();
    sound(&volume, "no inodes");
}

#[test]
fn a_full_cache_disk_costs_speed_only() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let (_dir, volume) = sqlite();
    let mut mount = Mount::default();
    mount.data.cache = CacheConfig {
        dirs: vec![disk.path().join("cache")],
        free_space_ratio: 0.0,
        large_writes: true,
        ..CacheConfig::default()
    };
    let client = volume.mount_with(&volume.url, &mount);
    disk.fill();
    let content = |number: u8| vec![number; 300_000];
    for number in 0..8 {
        client.put(ROOT, &format!("f{number}"), &content(number)).unwrap();
    }
    client.vfs.close(None).unwrap();
    let fresh = volume.mount_with(&volume.url, &mount);
    for number in 0..8 {
        let ino = fresh.lookup(ROOT, &format!("f{number}")).unwrap().ino;
        assert!(fresh.get(ino).unwrap() == content(number));
    }
    disk.empty();
    fresh.put(ROOT, "later", &content(9)).unwrap();
    fresh.vfs.close(None).unwrap();
    sound(&volume, "full cache");
}

#[test]
fn a_file_without_a_name_lives_until_its_last_close() {
    let (_dir, volume) = sqlite();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", &vec![1; 100_000]).unwrap();
    let (a, b) = (one.open(ino).unwrap(), one.open(ino).unwrap());
    one.unlink(ROOT, "f").unwrap();
    assert_eq!(two.lookup(ROOT, "f"), Err(FsError::NotFound));
    one.write(a.fh, 100_000, &[2; 10]).unwrap();
    one.vfs.fsync(&one.never, a.fh).unwrap();
    // Neither a heartbeat of others nor their cleaning touches it.
    volume.clock.advance(HEARTBEAT);
    one.beat().unwrap();
    two.beat().unwrap();
    two.vfs.meta().clean(&Sink(&two), &two.never).unwrap();
    one.close(a.fh).unwrap();
    assert_eq!(one.read(b.fh, 99_999, 100).unwrap(), [&[1][..], &[2; 10]].concat());
    one.close(b.fh).unwrap();
    sluice_faults::eventually("its blocks go", || volume.store.keys().is_empty());
    one.vfs.close(None).unwrap();
    two.vfs.close(None).unwrap();
    sound(&volume, "sustained");
}

#[test]
fn what_a_dead_client_had_open_is_cleaned_by_another() {
    let (_dir, volume) = sqlite();
    let (dead, other) = (volume.mount(), volume.mount());
    let sid = dead.vfs.meta().sid();
    let ino = dead.put(ROOT, "f", &vec![1; 100_000]).unwrap();
    dead.open(ino).unwrap();
    dead.lock(ino, 3).unwrap();
    dead.unlink(ROOT, "f").unwrap();
    // It ends without a word.
    drop(dead);
    volume.clock.advance(HEARTBEAT);
    other.beat().unwrap();
    let records = || Records::load(engine(&volume.url).as_ref());
    assert_eq!(records().sustained, [(sid, ino)], "it may still live");
    volume.outlive(&other).unwrap();
    assert_eq!(records().sustained, []);
    assert!(!records().sessions.contains(&sid));
    // Deleted files are left to who deleted them for an hour.
    volume.clock.advance(Duration::from_hours(2));
    other.vfs.meta().clean(&Sink(&other), &other.never).unwrap();
    assert_eq!(volume.store.keys(), [""; 0]);
    other.vfs.close(None).unwrap();
    sound(&volume, "dead");
}
