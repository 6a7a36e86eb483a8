//! Names and listings.

use std::{collections::BTreeSet, thread};

use sluice_fs::{Cursor, FileType, FsError, RenameMode};

use crate::rig::{Rig, fails, get, put};

pub(crate) fn names_are_made_moved_and_removed(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir("/d", 0o755).unwrap();
    fails(fs.mkdir("/d", 0o755), FsError::Exists);
    put(&fs, "/d/f", b"f");
    fs.link("/d/f", "/d/g").unwrap();
    assert_eq!(fs.stat("/d/g").unwrap().attr.nlink, 2);
    fails(fs.link("/d", "/e"), FsError::Perm);
    fails(fs.link("/d/f", "/d/g"), FsError::Exists);
    fs.unlink("/d/f").unwrap();
    fails(fs.unlink("/d/f"), FsError::NotFound);
    fails(fs.unlink("/d"), FsError::IsDir);
    fails(fs.rmdir("/d"), FsError::NotEmpty);
    fails(fs.rmdir("/d/g"), FsError::NotDir);

    put(&fs, "/d/h", b"h");
    fails(fs.rename("/d/g", "/d/h", RenameMode::NoReplace), FsError::Exists);
    fs.rename("/d/g", "/d/h", RenameMode::Exchange).unwrap();
    assert_eq!((get(&fs, "/d/g"), get(&fs, "/d/h")), (b"h".to_vec(), b"f".to_vec()));
    fs.rename("/d/g", "/d/h", RenameMode::Replace).unwrap();
    assert_eq!(get(&fs, "/d/h"), b"h");
    fs.mkdir("/d/s", 0o755).unwrap();
    fails(fs.rename("/d", "/d/s/d", RenameMode::Replace), FsError::Invalid);
    fails(fs.rename("/d/s", "/d/h", RenameMode::Replace), FsError::NotDir);
    fails(fs.rename("/d/h", "/d/s", RenameMode::Replace), FsError::IsDir);
    for special in ["/", "/d/.", "/d/.."] {
        fails(fs.rename(special, "/x", RenameMode::Replace), FsError::Busy);
        fails(fs.rename("/d/h", special, RenameMode::Replace), FsError::Busy);
        fails(fs.mkdir(special, 0o755), FsError::Exists);
        fails(fs.unlink(special), FsError::IsDir);
        fails(fs.symlink("x", special), FsError::Exists);
        fails(fs.link("/d/h", special), FsError::Exists);
    }
    fails(fs.rmdir("/"), FsError::Busy);
    fails(fs.rmdir("/d/."), FsError::Invalid);
    fails(fs.rmdir("/d/.."), FsError::NotEmpty);
    fs.unlink("/d/h").unwrap();
    fs.rmdir("/d/s").unwrap();
    fs.rmdir("/d").unwrap();
}

pub(crate) fn directories_are_made_with_those_above(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir_all("/a/b/c/d", 0o700).unwrap();
    fs.mkdir_all("/a/b/c/d/", 0o700).unwrap();
    fs.mkdir_all("/", 0o700).unwrap();
    for dir in ["/a", "/a/b", "/a/b/c/d"] {
        assert_eq!(fs.stat(dir).unwrap().attr.mode, 0o700);
    }
    put(&fs, "/f", b"");
    fails(fs.mkdir_all("/f", 0o755), FsError::Exists);
    fails(fs.mkdir_all("/f/x/y", 0o755), FsError::NotDir);
    fs.symlink("/nothing/here", "/dangling").unwrap();
    fails(fs.mkdir_all("/dangling/x", 0o755), FsError::NotFound);
}

pub(crate) fn many_make_the_same_directories(rig: &Rig) {
    let fs = rig.root();
    thread::scope(|scope| {
        for at in 0..8 {
            let fs = fs.clone();
            scope.spawn(move || {
                for deep in 0..4 {
                    fs.mkdir_all(format!("/x/y{deep}/z/w"), 0o755).unwrap();
                    put(&fs, &format!("/x/y{deep}/z/w/{at}"), b"x");
                }
            });
        }
    });
    assert_eq!(fs.list_all("/x/y3/z/w").unwrap().len(), 8);
}

pub(crate) fn trailing_slashes_name_directories(rig: &Rig) {
    let fs = rig.root();
    put(&fs, "/f", b"f");
    fs.mkdir("/d/", 0o755).unwrap();
    fs.symlink("d", "/l").unwrap();
    fails(fs.mkdir("/l/", 0o755), FsError::Exists);
    fails(fs.create("/new/"), FsError::IsDir);
    fails(fs.open("/f/"), FsError::NotDir);
    fails(fs.unlink("/f/"), FsError::NotDir);
    fails(fs.unlink("/l/"), FsError::NotDir);
    fails(fs.unlink("/d/"), FsError::IsDir);
    fails(fs.unlink("/new/"), FsError::NotFound);
    fails(fs.symlink("x", "/new/"), FsError::NotFound);
    fails(fs.symlink("x", "/f/"), FsError::Exists);
    fails(fs.link("/f", "/new/"), FsError::NotFound);
    fails(fs.rename("/f/", "/g", RenameMode::Replace), FsError::NotDir);
    fails(fs.rename("/f", "/g/", RenameMode::Replace), FsError::NotDir);
    fs.rename("/d/", "/e/", RenameMode::Replace).unwrap();
    fs.rmdir("/e/").unwrap();
}

pub(crate) fn listings_are_whole_and_continue(rig: &Rig) {
    const FILES: usize = 700;
    let fs = rig.root();
    fs.mkdir("/d", 0o755).unwrap();
    thread::scope(|scope| {
        for part in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for file in (part..FILES).step_by(4) {
                    put(fs, &format!("/d/f{file:04}"), b"x");
                }
            });
        }
    });
    fs.mkdir("/d/dir", 0o755).unwrap();
    let mut names = BTreeSet::new();
    let mut from = None;
    let mut pages = 0;
    loop {
        // A cursor may have been outside of the program.
        let from_outside = from.as_ref().map(|from: &Cursor| Cursor::from_bytes(from.as_bytes()));
        assert_eq!(from_outside, from);
        let page = fs.list("/d", from_outside.as_ref(), 100).unwrap();
        for item in &page.items {
            let attr = item.attr.unwrap();
            assert_eq!((attr.kind, attr.is_dir()), (item.kind, item.kind == FileType::Dir));
            names.insert(item.name.clone());
        }
        pages += 1;
        // What is made meanwhile may come or not; the others come all the same.
        put(&fs, &format!("/d/later{pages}"), b"");
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    names.retain(|name| !name.starts_with(b"later"));
    assert_eq!(names.len(), FILES + 1);
    let all = fs.list_all("/d").unwrap();
    assert_eq!(all.len(), FILES + 1 + pages);
    fails(fs.list("/d/f0001", None, 10), FsError::NotDir);
    fails(fs.list("/absent", None, 10), FsError::NotFound);
}

pub(crate) fn what_was_written_shows_in_listings(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir("/d", 0o755).unwrap();
    let file = fs.create("/d/f").unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    let length = |name: &str| {
        let items = fs.list_all("/d").unwrap();
        items.iter().find(|item| *item.name == *name.as_bytes()).unwrap().attr.unwrap().length
    };
    assert_eq!((length("f"), fs.stat("/d/f").unwrap().attr.length), (5000, 5000));
    file.close().unwrap();
    assert_eq!(length("f"), 5000);
}
