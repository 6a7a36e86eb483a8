//! The kernel's pages of a file in a mounted volume: own changes keep them, changes of another
//! mount do not.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod memfs;
mod mounted;
mod rig;

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
    time::Duration,
};

use mounted::{Mounted, Volume};
use rig::{no_fuse, over_rings};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use sluice_vfs::VfsConfig;

over_both!(
    own_changes_keep_the_pages,
    another_mount_s_changes_are_seen_by_the_next_open,
    another_mount_s_changes_are_seen_through_a_file_that_stays_open,
    appends_past_the_pages_are_read_back,
);

/// Of whole pages: of a part of a page that was written, the kernel reads the rest.
const SIZE: usize = 98_304;

/// Two mounts of one volume, whose kernel keeps no names and attributes.
fn two() -> Option<(Mounted, Mounted)> {
    if no_fuse() {
        return None;
    }
    let config = || VfsConfig { attr_ttl: Duration::ZERO, entry_ttl: Duration::ZERO, ..VfsConfig::default() };
    let volume = Volume::new(0);
    Some((Mounted::over(&volume, config(), over_rings()), Mounted::over(&volume, config(), over_rings())))
}

fn paths(one: &Mounted, other: &Mounted) -> (PathBuf, PathBuf) {
    (one.path().join("f"), other.path().join("f"))
}

fn content(of: u8) -> Vec<u8> {
    vec![of; SIZE]
}

type Change = fn(&File);

/// Ways to change a file of [`SIZE`] bytes through a mount. Each leaves other content, the first
/// ones of the same length.
const CHANGES: [(&str, Change); 5] = [
    ("written", |file| file.write_all_at(b"other", 50_000).unwrap()),
    ("punched", |file| {
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 10, 60_000).unwrap();
    }),
    ("cut and grown", |file| [50_000, SIZE as u64].into_iter().for_each(|to| file.set_len(to).unwrap())),
    ("cut", |file| file.set_len(30_000).unwrap()),
    ("appended", |file| file.write_all_at(b"more", SIZE as u64).unwrap()),
];

fn own_changes_keep_the_pages() {
    let Some((one, other)) = two() else { return };
    let (here, there) = paths(&one, &other);
    let read = || one.asked(["read"], || drop(fs::read(&here).unwrap()))[0];
    let mine = || File::options().read(true).write(true).open(&here).unwrap();
    fs::write(&here, content(1)).unwrap();
    assert_eq!(read(), 0, "it was written here");
    mine().write_all_at(b"other", 0).unwrap();
    fs::metadata(&here).unwrap();
    assert_eq!(read(), 0, "it was opened and written here");
    fs::set_permissions(&here, fs::metadata(&here).unwrap().permissions()).unwrap();
    assert_eq!(read(), 0, "its mode was set");
    fs::write(&there, content(2)).unwrap();
    assert!(read() > 0, "the other mount wrote it");
    assert_eq!(read(), 0);
    assert_eq!(fs::read(&here).unwrap(), content(2));
    // Between an open here and a write here, the other mount writes.
    let file = mine();
    fs::write(&there, content(3)).unwrap();
    file.write_all_at(b"mine", 0).unwrap();
    drop(file);
    let mut wanted = content(3);
    wanted[..4].copy_from_slice(b"mine");
    assert!(fs::read(&here).unwrap() == wanted);
    assert!(fs::read(&there).unwrap() == wanted);
}

fn another_mount_s_changes_are_seen_by_the_next_open() {
    let Some((one, other)) = two() else { return };
    let (here, there) = paths(&one, &other);
    for (what, change) in CHANGES {
        fs::write(&here, content(1)).unwrap();
        assert!(fs::read(&here).unwrap() == content(1), "{what}");
        change(&File::options().write(true).open(&there).unwrap());
        let wanted = fs::read(&there).unwrap();
        assert!(wanted != content(1), "{what}");
        assert!(fs::read(&here).unwrap() == wanted, "{what}");
    }
}

fn another_mount_s_changes_are_seen_through_a_file_that_stays_open() {
    let Some((one, other)) = two() else { return };
    let (here, there) = paths(&one, &other);
    for locks in [false, true] {
        for (what, change) in CHANGES {
            fs::write(&here, content(1)).unwrap();
            let file = File::open(&here).unwrap();
            let read = || {
                let mut content = vec![0; file.metadata().unwrap().len() as usize];
                file.read_exact_at(&mut content, 0).unwrap();
                content
            };
            assert!(read() == content(1), "{what}");
            change(&File::options().write(true).open(&there).unwrap());
            let wanted = fs::read(&there).unwrap();
            if locks {
                flock(&file, FlockOperation::LockShared).unwrap();
                let mut seen = vec![0; wanted.len()];
                file.read_exact_at(&mut seen, 0).unwrap();
                assert!(seen == wanted, "{what}, read under a lock");
                drop(file);
            } else {
                assert!(read() == wanted, "{what}, after its attributes were read");
            }
        }
    }
}

fn appends_past_the_pages_are_read_back() {
    let Some((one, other)) = two() else { return };
    let (here, there) = paths(&one, &other);
    fs::write(&here, [1; 5000]).unwrap();
    let file = File::open(&here).unwrap();
    let direct = File::options().append(true).custom_flags(libc::O_DIRECT).open(&here).unwrap();
    let mut wanted = vec![1; 5000];
    for round in 0..8 {
        let mut seen = vec![0; 100_000];
        let length = file.read_at(&mut seen, 0).unwrap();
        assert!(seen[..length] == wanted, "round {round}");
        std::io::Write::write_all(&mut &direct, &Page([round; 4096]).0).unwrap();
        wanted.extend([round; 4096]);
        assert!(fs::read(&here).unwrap() == wanted, "round {round}");
    }
    drop(direct);
    assert!(fs::read(&there).unwrap() == wanted);
}

/// Memory that a direct write takes.
#[repr(align(4096))]
struct Page([u8; 4096]);
