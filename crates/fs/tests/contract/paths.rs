//! Path resolution.

use sluice_fs::{FileType, FsError, RenameMode, User};

use crate::rig::{Rig, fails, get, put};

pub(crate) fn dots_and_slashes_mean_what_posix_says(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir_all("/a/b", 0o755).unwrap();
    put(&fs, "/a/b/f", b"f");
    let file = fs.stat("/a/b/f").unwrap().ino;
    for same in ["a/b/f", "//a//b/./f", "/a/../a/b/f", "/a/b/../../a/b/f", "/../../a/b/f", "./a/./b/f"] {
        assert_eq!(fs.stat(same).unwrap().ino, file, "{same}");
    }
    let dir = fs.stat("/a").unwrap().ino;
    for same in ["/a/", "/a/.", "/a/b/..", "/a/b/../", "/a/./"] {
        assert_eq!(fs.stat(same).unwrap().ino, dir, "{same}");
    }
    let root = fs.stat("/").unwrap().ino;
    for same in [".", "..", "/..", "/a/..", "//"] {
        assert_eq!(fs.stat(same).unwrap().ino, root, "{same}");
    }
    for (path, error) in [
        ("/a/b/f/", FsError::NotDir),
        ("/a/b/f/.", FsError::NotDir),
        ("/a/b/f/..", FsError::NotDir),
        ("/a/b/f/x", FsError::NotDir),
        ("/a/x", FsError::NotFound),
        ("/a/x/..", FsError::NotFound),
        ("/x/a/b", FsError::NotFound),
        ("", FsError::NotFound),
        ("/a\0b", FsError::Invalid),
    ] {
        fails(fs.stat(path), error);
    }
}

pub(crate) fn links_are_followed_and_stay_in_the_volume(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir_all("/d/e", 0o755).unwrap();
    put(&fs, "/d/f", b"content");
    fs.symlink("f", "/d/relative").unwrap();
    fs.symlink("/d/f", "/absolute").unwrap();
    fs.symlink("d", "/dir").unwrap();
    fs.symlink("../../../../d/e/..", "/d/e/up").unwrap();
    fs.symlink("dir/", "/slash").unwrap();
    fs.symlink("d/f/", "/no-dir").unwrap();
    fs.symlink("nothing", "/dangling").unwrap();
    for path in
        ["/d/relative", "/absolute", "/dir/f", "/dir/relative", "/d/e/up/f", "/slash/f", "/dir/../d/f"]
    {
        assert_eq!(get(&fs, path), b"content", "{path}");
    }
    assert_eq!(fs.lstat("/dir").unwrap().attr.kind, FileType::Symlink);
    assert_eq!(fs.lstat("/dir/").unwrap().attr.kind, FileType::Dir);
    assert_eq!(fs.readlink("/d/e/up").unwrap(), b"../../../../d/e/..");
    fails(fs.readlink("/dir/"), FsError::Invalid);
    fails(fs.stat("/no-dir"), FsError::NotDir);
    fails(fs.stat("/dangling"), FsError::NotFound);
    assert!(!fs.exists("/dangling").unwrap() && fs.lstat("/dangling").is_ok());
    // A file is made where a link leads.
    put(&fs, "/dangling", b"new");
    assert_eq!(get(&fs, "/nothing"), b"new");
}

pub(crate) fn chains_of_links_end(rig: &Rig) {
    let fs = rig.root();
    put(&fs, "/l0", b"end");
    for link in 1..=41 {
        fs.symlink(format!("l{}", link - 1), format!("/l{link}")).unwrap();
    }
    assert_eq!(get(&fs, "/l40"), b"end");
    fails(fs.stat("/l41"), FsError::Loop);
    fs.symlink("loop", "/loop").unwrap();
    fails(fs.stat("/loop"), FsError::Loop);
    fails(fs.stat("/loop/x"), FsError::Loop);
    assert!(fs.lstat("/loop").is_ok());
}

pub(crate) fn limits_of_paths(rig: &Rig) {
    let fs = rig.root();
    let long = "n".repeat(255);
    fs.mkdir(&long, 0o755).unwrap();
    assert!(fs.stat(&long).unwrap().attr.is_dir());
    fails(fs.stat(long.clone() + "n"), FsError::NameTooLong);
    fails(fs.mkdir(long.clone() + "n", 0o755), FsError::NameTooLong);
    // What comes before it counts first.
    fails(fs.stat(format!("/absent/{long}n")), FsError::NotFound);
    fails(fs.stat("/".repeat(4096)), FsError::NameTooLong);
    assert!(fs.stat("/".repeat(4095)).unwrap().attr.is_dir());
}

pub(crate) fn the_trash_is_a_directory_and_internal_files_do_not_exist(rig: &Rig) {
    let fs = rig.root();
    assert!(fs.stat("/.trash").unwrap().attr.is_dir());
    assert_eq!(fs.stat("/.trash/..").unwrap().ino, fs.stat("/").unwrap().ino);
    for name in ["/.stats", "/.config", "/.accesslog", "/.control"] {
        assert!(!fs.exists(name).unwrap(), "{name}");
        // A mount could not show it.
        fails(fs.create(name), FsError::Exists);
    }
    assert_eq!(fs.list_all("/").unwrap(), []);
    fails(fs.rmdir("/.trash"), FsError::Perm);
}

/// What a walk remembers only saves trips.
pub(crate) fn a_moved_directory_is_found_at_its_new_place(rig: &Rig) {
    let fs = rig.root();
    let other = sluice_fs::Volume::new(rig.open()).fs(&sluice_fs::User::root());
    fs.mkdir_all("/a/b/c", 0o755).unwrap();
    put(&fs, "/a/b/c/f", b"1");
    other.stat("/a/b/c/f").unwrap();
    for round in 0..4 {
        let (client, moves) = if round % 2 == 0 { (&fs, &other) } else { (&other, &fs) };
        client.stat("/a/b/c/f").unwrap();
        moves.rename("/a/b", "/a/old", RenameMode::Replace).unwrap();
        fails(client.stat("/a/b/c/f"), FsError::NotFound);
        moves.mkdir_all("/a/b/c", 0o755).unwrap();
        fails(client.stat("/a/b/c/f"), FsError::NotFound);
        put(moves, "/a/b/c/f", b"2");
        assert_ne!(client.stat("/a/b/c/f").unwrap().ino, client.stat("/a/old/c/f").unwrap().ino);
        moves.remove_all("/a/old", true).unwrap();
    }
}

pub(crate) fn an_error_names_the_path(rig: &Rig) {
    let fs = rig.root();
    let error = fs.stat("/no/such").unwrap_err();
    assert_eq!(error.to_string(), "/no/such: no such file or directory");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    fs.mkdir("/d", 0o755).unwrap();
    fs.mkdir("/full", 0o755).unwrap();
    put(&fs, "/full/f", b"");
    let about = |from, to| fs.rename(from, to, RenameMode::Replace).unwrap_err().path.into_vec();
    assert_eq!(about("/d", "/full"), *b"/full");
    assert_eq!(about("/absent", "/full"), *b"/absent");
    assert_eq!(about("/d", "/absent/d"), *b"/absent/d");
    let file = fs.open("/full/f").unwrap();
    assert_eq!(file.write_at(b"x", 0).unwrap_err().to_string(), "/full/f: bad file descriptor");
}

pub(crate) fn a_node_is_found_again_by_its_inode(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir_all("/i/open", 0o755).unwrap();
    fs.mkdir("/i/closed", 0o700).unwrap();
    put(&fs, "/i/open/f", b"f");
    put(&fs, "/i/closed/g", b"g");
    let (f, g) = (fs.stat("/i/open/f").unwrap().ino, fs.stat("/i/closed/g").unwrap().ino);
    assert_eq!(fs.path_of(f).unwrap(), b"/i/open/f");
    fs.rename("/i/open/f", "/i/open/moved", RenameMode::NoReplace).unwrap();
    assert_eq!(fs.path_of(f).unwrap(), b"/i/open/moved");
    assert_eq!(fs.path_of(fs.stat("/").unwrap().ino).unwrap(), b"/");
    // Who may not search the directory does not learn what is in it.
    let user = rig.volume.fs(&User::new(1000, 100));
    assert_eq!(user.path_of(f).unwrap(), b"/i/open/moved");
    assert_eq!(user.path_of(g).unwrap_err().error, FsError::NotFound);
    fs.unlink("/i/open/moved").unwrap();
    assert_eq!(fs.path_of(f).unwrap_err().error, FsError::NotFound, "it is in the trash");
}

pub(crate) fn a_view_has_the_umask_that_it_was_given(rig: &Rig) {
    let fs = rig.root();
    let mode = |path: &str| fs.stat(path).unwrap().attr.mode;
    fs.with_umask(0o077).mkdir("/private", 0o777).unwrap();
    fs.with_umask(0).mkdir("/public", 0o777).unwrap();
    assert_eq!((mode("/private"), mode("/public")), (0o700, 0o777));
}
