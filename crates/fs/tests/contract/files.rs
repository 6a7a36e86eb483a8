//! Content of files.

use std::thread;

use sluice_fs::{File, FsError, OpenOptions, User, Volume};

use crate::rig::{Rig, fails, get, put};

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8).collect()
}

const BOTH: OpenOptions = OpenOptions::new().read(true).write(true).create(true);

pub(crate) fn content_is_read_and_written_anywhere(rig: &Rig) {
    let fs = rig.root();
    let file = fs.open_with("/f", BOTH).unwrap();
    let content = bytes(1, 300_000);
    file.write_at(&content, 0).unwrap();
    assert_eq!(file.len().unwrap(), 300_000);
    file.sync().unwrap();
    thread::scope(|scope| {
        for part in 0..8 {
            let (file, content) = (&file, &content);
            scope.spawn(move || {
                for at in (part * 1000..290_000).step_by(37_000) {
                    let mut buffer = vec![0; 9_000];
                    assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), 9_000);
                    assert_eq!(buffer, content[at..at + 9_000]);
                }
            });
        }
    });
    // Beyond the end, and over it.
    let mut buffer = [7; 10];
    assert_eq!(file.read_at(&mut buffer, 299_996).unwrap(), 4);
    assert_eq!(file.read_at(&mut buffer, 300_000).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!(file.read_pieces(299_000, 5000).unwrap().concat(), content[299_000..]);
    file.write_at(b"far", 400_000).unwrap();
    assert_eq!(file.read_pieces(399_998, 100).unwrap().concat(), b"\0\0far");
    file.set_len(400_001).unwrap();
    file.set_len(400_003).unwrap();
    assert_eq!(file.read_pieces(399_998, 100).unwrap().concat(), b"\0\0f\0\0");
    fs.set_len("/f", 10).unwrap();
    file.close().unwrap();
    assert_eq!(get(&fs, "/f"), content[..10]);
    fs.mkdir("/d", 0o755).unwrap();
    fails(fs.set_len("/d", 1), FsError::IsDir);
    fails(fs.open("/d"), FsError::IsDir);
}

pub(crate) fn options_without_a_meaning_are_refused(rig: &Rig) {
    let fs = rig.root();
    let options = OpenOptions::new;
    for wrong in [
        options(),
        options().create(true),
        options().read(true).create(true),
        options().read(true).create_new(true),
        options().read(true).truncate(true),
    ] {
        fails(fs.open_with("/f", wrong), FsError::Invalid);
    }
    assert!(!fs.exists("/f").unwrap());
    put(&fs, "/f", b"x");
    let appends = fs.open_with("/f", options().append(true)).unwrap();
    fails(appends.write_at(b"x", 0), FsError::BadFd);
    fails(appends.read_at(&mut [0], 0), FsError::BadFd);
    fails(appends.read_pieces(0, 1), FsError::BadFd);
    let reads = fs.open("/f").unwrap();
    fails(reads.append(b"x"), FsError::BadFd);
    fails(reads.set_len(0), FsError::Invalid);
    let writes = fs.open_with("/f", options().write(true)).unwrap();
    fails(writes.copy_from(5, &appends, 0, 1), FsError::BadFd);
    assert_eq!(writes.copy_from(5, &reads, 0, 1).unwrap(), 1);
}

pub(crate) fn opens_make_and_empty_files(rig: &Rig) {
    let fs = rig.root();
    let options = OpenOptions::new().write(true);
    fails(fs.open_with("/f", options), FsError::NotFound);
    let made = fs.open_with("/f", options.create_new(true).mode(0o6777)).unwrap();
    made.write_at(b"content", 0).unwrap();
    assert_eq!(fs.stat("/f").unwrap().attr.mode, 0o6755);
    fails(fs.open_with("/f", options.create_new(true)), FsError::Exists);
    made.close().unwrap();
    fs.open_with("/f", options.create(true)).unwrap().close().unwrap();
    assert_eq!(get(&fs, "/f"), b"content");
    fs.open_with("/f", options.truncate(true)).unwrap().close().unwrap();
    assert_eq!(get(&fs, "/f"), b"");
    fs.symlink("f", "/l").unwrap();
    fails(fs.open_with("/l", options.create_new(true)), FsError::Exists);
    fails(fs.open_with("/f/g", options.create(true)), FsError::NotDir);
    fails(fs.open_with("/absent/g", options.create(true)), FsError::NotFound);
}

pub(crate) fn appends_of_many_threads_lie_side_by_side(rig: &Rig) {
    const THREADS: usize = 6;
    const APPENDS: usize = 50;
    let fs = rig.root();
    put(&fs, "/f", b"head");
    let options = OpenOptions::new().append(true);
    let places: Vec<(u64, u8)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|by| {
                let file = fs.open_with("/f", options).unwrap();
                scope.spawn(move || {
                    let piece = [by as u8 + 1; 100];
                    let places = (0..APPENDS).map(|_| (file.append(&piece).unwrap(), by as u8 + 1)).collect();
                    file.close().unwrap();
                    places
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| -> Vec<_> { thread.join().unwrap() }).collect()
    });
    let content = get(&fs, "/f");
    assert_eq!(content.len(), 4 + THREADS * APPENDS * 100);
    for (at, by) in places {
        assert!(content[at as usize..][..100].iter().all(|byte| *byte == by), "{by} at {at}");
    }
}

pub(crate) fn what_was_flushed_is_seen_by_others(rig: &Rig) {
    let fs = rig.root();
    let other = Volume::new(rig.open()).fs(&User::root());
    let file = fs.create("/f").unwrap();
    for round in 0..5u8 {
        file.append(&[round; 1000]).unwrap();
        if round % 2 == 0 {
            file.flush().unwrap();
        } else {
            file.sync().unwrap();
        }
        let seen = get(&other, "/f");
        assert_eq!((seen.len(), seen.last()), ((usize::from(round) + 1) * 1000, Some(&round)));
    }
}

pub(crate) fn a_file_without_a_name_is_still_there(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir("/d", 0o755).unwrap();
    put(&fs, "/d/f", b"still there");
    let file = fs.open_with("/d/f", BOTH).unwrap();
    fs.remove_all("/d", true).unwrap();
    assert_eq!(file.read_pieces(0, 100).unwrap().concat(), b"still there");
    file.write_at(b"STILL", 0).unwrap();
    assert_eq!(file.stat().unwrap().attr.nlink, 0);
    file.close().unwrap();
}

pub(crate) fn files_are_made_of_others(rig: &Rig) {
    let fs = rig.root();
    let parts = [bytes(1, 100_000), bytes(2, 0), bytes(3, 70_001), bytes(4, 5)];
    for (number, part) in parts.iter().enumerate() {
        put(&fs, &format!("/p{number}"), part);
    }
    put(&fs, "/whole", b"head");
    let whole = [b"head".to_vec(), parts.concat()].concat();
    fs.concat("/whole", &["/p0", "/p1", "/p2", "/p3"]).unwrap();
    assert_eq!(get(&fs, "/whole"), whole);
    assert_eq!(fs.list_all("/").unwrap().len(), 1);

    // Parts of files, within a file too.
    let source: File = fs.open("/whole").unwrap();
    let target = fs.open_with("/copy", BOTH).unwrap();
    assert_eq!(target.copy_from(3, &source, 100, 1000).unwrap(), 1000);
    assert_eq!(target.copy_from(2000, &target, 0, 1003).unwrap(), 1003);
    assert_eq!(target.copy_from(0, &source, whole.len() as u64 - 2, 100).unwrap(), 2);
    fails(target.copy_from(10, &target, 0, 100), FsError::Invalid);
    fails(source.copy_from(0, &target, 0, 1), FsError::BadFd);
    let copied = target.read_pieces(0, 5000).unwrap().concat();
    assert_eq!(copied[..2], whole[whole.len() - 2..]);
    assert_eq!(copied[3..1003], whole[100..1100]);
    assert_eq!(copied[2003..3003], whole[100..1100]);
}

pub(crate) fn a_failed_concat_leaves_the_file(rig: &Rig) {
    let fs = rig.root();
    put(&fs, "/whole", b"whole");
    put(&fs, "/p", b"part");
    fs.mkdir("/dir", 0o755).unwrap();
    fs.symlink("p", "/link").unwrap();
    for sources in [&["/p", "/absent"][..], &["/p", "/dir"], &["/p", "/p"], &["/p", "/whole"], &["/link"]] {
        assert!(fs.concat("/whole", sources).is_err(), "{sources:?}");
        assert_eq!((get(&fs, "/whole"), get(&fs, "/p")), (b"whole".to_vec(), b"part".to_vec()));
    }
    // One who may read a part but not remove it.
    let user = rig.volume.fs(&User::new(1000, 100));
    fs.set_owner("/whole", Some(1000), None, true).unwrap();
    fails(user.concat("/whole", &["/p"]), FsError::Access);
    assert_eq!((get(&fs, "/whole"), get(&fs, "/p")), (b"whole".to_vec(), b"part".to_vec()));
}
