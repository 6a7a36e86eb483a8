//! How many round trips each call makes. One more is a defect: the caller waits for each of them.

use std::sync::Arc;

use sluice_fs::{Access, OpenOptions, RenameMode, User, Volume};
use sluice_meta::{Meta, mem::MemEngine, schema::VolumeFormat};
use sluice_testkit::wrap::Counting;
use sluice_types::{Clock as _, SystemClock};

use crate::rig::{join, put};

/// Asserts that `run` takes no more than so many reads, commits and pages of scans.
#[track_caller]
fn at_most<T>(
    count: &Counting,
    what: &str,
    (reads, commits, pages): (u64, u64, u64),
    run: impl FnOnce() -> sluice_fs::Result<T>,
) -> T {
    let (answer, trips) = count.during(run);
    let within = trips.reads <= reads && trips.commits <= commits && trips.pages <= pages;
    assert!(within, "{what}: {trips}");
    answer.unwrap()
}

#[test]
fn calls_stay_in_their_budgets() {
    let engine = Arc::new(Counting::new(Arc::new(MemEngine::new())));
    let format = VolumeFormat { name: "trips".into(), block_size: 64, ..VolumeFormat::default() };
    Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let volume = Volume::new(join(Arc::clone(&engine) as _, dir.path()));
    let root = volume.fs(&User::root());
    root.mkdir("/u", 0o777).unwrap();
    root.set_mode("/u", 0o777).unwrap();
    // What is checked for a user costs nothing more.
    let fs = volume.fs(&User::new(1000, 100));
    fs.mkdir_all("/u/a/b/c/d", 0o755).unwrap();
    put(&fs, "/u/a/b/c/d/f", b"content");
    let count = &*engine;
    let path = "/u/a/b/c/d/f";

    at_most(count, "stat", (1, 0, 0), || fs.stat(path));
    at_most(count, "access", (1, 0, 0), || fs.access(path, Access::READ));
    at_most(count, "list", (1, 0, 1), || fs.list("/u/a/b/c/d", None, 100));
    at_most(count, "mkdir", (1, 1, 0), || fs.mkdir("/u/a/b/c/d/new", 0o755));
    at_most(count, "mkdir_all of what is there", (2, 0, 0), || fs.mkdir_all("/u/a/b/c/d", 0o755));
    at_most(count, "rmdir", (2, 1, 0), || fs.rmdir("/u/a/b/c/d/new"));
    at_most(count, "rename", (1, 1, 0), || fs.rename(path, "/u/a/b/c/d/g", RenameMode::Replace));
    at_most(count, "rename back", (1, 1, 0), || fs.rename("/u/a/b/c/d/g", path, RenameMode::Replace));
    at_most(count, "chmod", (2, 1, 0), || fs.set_mode(path, 0o644));

    let file = at_most(count, "open", (1, 0, 0), || fs.open(path));
    at_most(count, "length", (0, 0, 0), || file.len());
    at_most(count, "first read", (1, 0, 0), || file.read_pieces(0, 10));
    at_most(count, "second read", (0, 0, 0), || file.read_pieces(0, 10));
    at_most(count, "close", (0, 0, 0), || file.close());
    let new = OpenOptions::new().write(true).create_new(true);
    let file = at_most(count, "create", (1, 1, 0), || fs.open_with("/u/a/b/c/d/h", new));
    at_most(count, "write", (0, 0, 0), || file.append(b"data"));
    at_most(count, "close of what was written", (1, 1, 0), || file.close());
    at_most(count, "unlink", (1, 1, 0), || fs.unlink("/u/a/b/c/d/h"));
    at_most(count, "stat by way of dots", (3, 0, 0), || fs.stat("/u/a/b/../b/c/d/f"));
}

/// A path that was never walked takes a trip for each name, and one if it was.
#[test]
fn a_walk_learns_directories() {
    let engine = Arc::new(Counting::new(Arc::new(MemEngine::new())));
    let format = VolumeFormat { name: "trips".into(), block_size: 64, ..VolumeFormat::default() };
    Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let one = Volume::new(join(Arc::clone(&engine) as _, dir.path())).fs(&User::root());
    let other = Volume::new(join(Arc::clone(&engine) as _, dir.path())).fs(&User::root());
    one.mkdir_all("/a/b/c", 0o755).unwrap();
    at_most(&engine, "first walk", (3, 0, 0), || other.stat("/a/b/c"));
    at_most(&engine, "second walk", (1, 0, 0), || other.stat("/a/b/c"));
    // Its parts moved: what is remembered is wrong.
    one.rename("/a/b", "/a/old", RenameMode::Replace).unwrap();
    one.mkdir_all("/a/b/c", 0o755).unwrap();
    at_most(&engine, "walk by wrong guesses", (2, 0, 0), || other.stat("/a/b/c"));
    at_most(&engine, "walk by new guesses", (1, 0, 0), || other.stat("/a/b/c"));
}
