//! The number of requests that the kernel sends to a mounted volume.
//!
//! No test here starts a program: the child of a fork has copies of the open files and closes them,
//! and the kernel sends a FLUSH for each close.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod mounted;

use std::{fs, io::Write as _, time::Duration};

use mounted::Mounted;
use sluice_vfs::VfsConfig;

#[test]
fn the_kernel_asks_no_more_than_it_must() {
    let Some(mounted) = Mounted::new(VfsConfig { xattr: true, ..VfsConfig::default() }) else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    let file = root.join("d/f");
    let ops = ["lookup", "create", "open", "flush", "getattr", "getxattr", "setattr"];
    let create = mounted.asked(ops, || drop(fs::File::create(&file).unwrap()));
    assert_eq!(create[..4], [1, 1, 0, 1], "create: {create:?}");
    assert!(create[4] <= 1 && create[5..] == [0, 0], "create: {create:?}");
    let read = mounted.asked(ops, || drop(fs::File::open(&file).unwrap()));
    // Record locks go with each close, whoever took them.
    assert_eq!(read[2..4], [1, 1], "one open, one flush: {read:?}");
    let unlink = mounted.asked(["unlink", "lookup", "open"], || fs::remove_file(&file).unwrap());
    assert_eq!(unlink, [1, 0, 0]);
    // The kernel looks for capabilities once a file, before its first write.
    let mut file = fs::File::create(root.join("d/g")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    let write = mounted.asked(["write", "getxattr", "setattr", "flush"], || {
        file.write_all(&vec![1; 64 << 10]).unwrap();
        file.write_all(&vec![1; 64 << 10]).unwrap();
    });
    assert_eq!(write, [2, 0, 0, 0], "nothing is asked before a write");
}

#[test]
fn an_open_asks_for_no_attributes_that_its_lookup_sent() {
    let none =
        VfsConfig { entry_ttl: Duration::ZERO, attr_ttl: Duration::from_hours(1), ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(none) else { return };
    let path = mounted.path().join("f");
    for length in [5, 10] {
        // The pages that the kernel has are older than the file.
        fs::write(&path, vec![1; length]).unwrap();
        // The file may be new in its directory.
        fs::metadata(mounted.path()).unwrap();
        let asked = mounted.asked(["lookup", "open", "getattr"], || {
            assert_eq!(fs::File::open(&path).unwrap().metadata().unwrap().len(), length as u64);
        });
        assert_eq!(asked, [1, 1, 0]);
    }
}
