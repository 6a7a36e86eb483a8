//! A client whose process dies, and another that takes its place.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::{
    collections::HashSet,
    fs::File,
    mem,
    os::unix::fs::FileExt,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

use rig::{Client, Volume};
use sluice_data::{DataConfig, DataStore};
use sluice_meta::{
    Meta, Options,
    engine::{Commit, Engine, EngineError, Write},
    ops::session::{DropLocks, DropSession},
    schema::Row,
};
use sluice_testkit::wrap::{Chances, Faulty, Hooked};
use sluice_types::{Caller, FileType, FsError, Ino, Rng};
use sluice_vfs::{
    Asked, FlockKind, Interrupt, Journal, JournalError, NewNode, Place, Plock, PlockRange, PreviousState,
    RenameMode, Restored, Vfs, VfsConfig, XattrMode,
};

const ROOT: Ino = Ino::ROOT;

/// A process that serves a volume.
struct Process {
    client: Client,
    journal: Arc<Journal>,
}

impl Process {
    fn start(volume: &Volume) -> Self {
        Self::on(volume, Arc::clone(&volume.engine) as _)
    }

    fn on(volume: &Volume, engine: Arc<dyn Engine>) -> Self {
        Self::open(volume, engine, Journal::create().unwrap(), None)
    }

    fn open(
        volume: &Volume,
        engine: Arc<dyn Engine>,
        journal: Journal,
        past: Option<&PreviousState>,
    ) -> Self {
        let journal = Arc::new(journal);
        let options = Options {
            timeout: Duration::from_secs(20),
            effect_log: Some(Arc::clone(&journal) as _),
            resume: past.and_then(PreviousState::resumed),
            ..Options::default()
        };
        let index = sluice_vfs::MetaIndex::new(Meta::open(engine, options).unwrap());
        let config = VfsConfig {
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            dir_entry_ttl: Duration::ZERO,
            heartbeat: Duration::from_hours(1),
            cleaning: false,
            xattr: true,
            journal: Some(Arc::clone(&journal)),
            ..VfsConfig::default()
        };
        let age = Duration::from_hours(1);
        let data = DataConfig { flush_age: age, flush_idle: age, ..DataConfig::default() };
        let data =
            DataStore::open(&data, Arc::clone(&volume.store) as _, Arc::clone(&index) as _, None).unwrap();
        let vfs = Vfs::new(index, data, config);
        let client = Client { vfs, caller: Caller::user(0, 0), never: Interrupt::never() };
        Self { client, journal }
    }

    /// It dies, without a chance to do anything.
    fn kill(self) -> File {
        let file = self.journal.file().try_clone().unwrap();
        mem::forget(self);
        file
    }

    /// Takes the place of a process that died.
    fn take_up(volume: &Volume, left: File) -> (Self, Restored) {
        let (journal, past) = Journal::open(left).unwrap();
        let process = Self::open(volume, Arc::clone(&volume.engine) as _, journal, Some(&past));
        let restored = process.client.vfs.restore(past).unwrap();
        (process, restored)
    }

    /// It dies and another takes its place.
    fn replace(self, volume: &Volume) -> (Self, Restored) {
        Self::take_up(volume, self.kill())
    }
}

fn request(unique: u64) -> Interrupt {
    Interrupt::of_request(Asked { unique, again: false })
}

fn again(unique: u64) -> Interrupt {
    Interrupt::of_request(Asked { unique, again: true })
}

fn node(kind: FileType) -> NewNode {
    NewNode { kind, mode: 0o755, umask: 0o022, rdev: 0 }
}

/// Requests that change names and attributes, each answered with an inode or nothing.
fn change(client: &Client, ino: Ino, step: u64, by: &Interrupt) -> Result<Option<Ino>, FsError> {
    let (vfs, caller) = (&client.vfs, &client.caller);
    match step {
        0 => vfs.make(caller, by, ROOT, b"dir", node(FileType::Dir)).map(|entry| Some(entry.ino)),
        1 => vfs.make(caller, by, ROOT, b"pipe", node(FileType::Fifo)).map(|entry| Some(entry.ino)),
        2 => vfs.symlink(caller, by, ROOT, b"symlink", b"target").map(|entry| Some(entry.ino)),
        3 => vfs.link(caller, by, ino, ROOT, b"link").map(|entry| Some(entry.ino)),
        4 => vfs.rename(caller, by, (ROOT, b"old"), (ROOT, b"new"), RenameMode::NoReplace).map(|()| None),
        5 => vfs.unlink(caller, by, ROOT, b"gone").map(|()| None),
        6 => vfs.rmdir(caller, by, ROOT, b"gone-dir").map(|()| None),
        7 => vfs.setxattr(caller, by, ino, (b"user.a", b"1"), XattrMode::Create).map(|()| None),
        8 => vfs.removexattr(caller, by, ino, b"user.b").map(|()| None),
        _ => vfs
            .create(caller, by, ROOT, b"made", node(FileType::File), libc::O_RDWR | libc::O_EXCL)
            .map(|(entry, _)| Some(entry.ino)),
    }
}

const STEPS: u64 = 10;

fn prepare(client: &Client) -> Ino {
    let ino = client.put(ROOT, "f", b"content");
    client.put(ROOT, "old", b"");
    client.put(ROOT, "gone", b"");
    client.mkdir(ROOT, "gone-dir").unwrap();
    let vfs = &client.vfs;
    vfs.setxattr(&client.caller, &client.never, ino, (b"user.b", b"1"), XattrMode::Any).unwrap();
    ino
}

#[test]
fn what_a_dead_process_did_is_answered_as_it_would_have_been_and_not_done_again() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let ino = prepare(&first.client);
    let answers: Vec<_> =
        (0..STEPS).map(|step| change(&first.client, ino, step, &request(step * 2 + 2)).unwrap()).collect();
    let (second, _) = first.replace(&volume);
    for step in 0..STEPS {
        let answer = change(&second.client, ino, step, &again(step * 2 + 2));
        assert_eq!(answer, Ok(answers[step as usize]), "step {step}");
        let other = change(&second.client, ino, step, &again(1000 + step));
        assert!(other.is_err(), "step {step}: another request is another one: {other:?}");
    }
    // The kernel may ask a third one.
    let (third, _) = second.replace(&volume);
    for step in 0..STEPS {
        let answer = change(&third.client, ino, step, &again(step * 2 + 2));
        assert_eq!(answer, Ok(answers[step as usize]), "step {step}");
    }
}

#[test]
fn an_open_that_is_asked_again_gives_the_handle_that_it_gave() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let Client { vfs, caller, .. } = &first.client;
    let flags = libc::O_RDWR | libc::O_EXCL;
    let (made, created) = vfs.create(caller, &request(2), ROOT, b"f", node(FileType::File), flags).unwrap();
    let opened = vfs.open(caller, &request(4), made.ino, libc::O_RDONLY).unwrap();
    let dir = vfs.opendir_by(&request(6), ROOT).unwrap();
    let (second, restored) = first.replace(&volume);
    assert_eq!(restored, Restored { open: vec![ROOT, made.ino], ..Restored::default() });
    let Client { vfs, caller, .. } = &second.client;
    let (entry, created_again) =
        vfs.create(caller, &again(2), ROOT, b"f", node(FileType::File), flags).unwrap();
    assert_eq!((entry.ino, created_again.fh), (made.ino, created.fh));
    assert_eq!(vfs.open(caller, &again(4), made.ino, libc::O_RDONLY).unwrap().fh, opened.fh);
    assert_eq!(vfs.opendir_by(&again(6), ROOT).unwrap(), dir);
    let fresh = second.client.open(made.ino, libc::O_RDONLY).unwrap().fh;
    assert!(fresh > dir, "no number is used twice: {fresh} after {dir}");
    for fh in [created.fh, opened.fh, fresh] {
        second.client.close(fh).unwrap();
    }
    let (third, restored) = second.replace(&volume);
    assert_eq!(restored.open, [ROOT], "what was closed stays closed");
    assert_eq!(third.client.vfs.release(opened.fh, None), Err(FsError::BadFd));
}

/// An engine on which the commit that makes a node of that name stops for ever, and is given to the
/// test.
fn stuck_at(volume: &Volume, name: &'static str) -> (Arc<dyn Engine>, mpsc::Receiver<Commit>) {
    let (tell, reported) = mpsc::channel();
    let makes = move |commit: &Commit| {
        commit
            .writes
            .iter()
            .any(|write| matches!(write, Write::Insert(Row::Entry(_, made, _)) if **made == *name.as_bytes()))
    };
    let hooked = Hooked::new(Arc::clone(&volume.engine) as _).before_commit(move |commit| {
        if makes(commit) {
            tell.send(commit.clone()).unwrap();
            loop {
                thread::park();
            }
        }
        Ok(())
    });
    (Arc::new(hooked), reported)
}

/// A process that died while it made a directory, and the commit that it had sent.
fn died_in_mkdir(volume: &Volume) -> (File, Commit) {
    let (engine, reported) = stuck_at(volume, "d");
    let first = Process::on(volume, engine);
    first.client.put(ROOT, "before", b"1");
    thread::spawn({
        let vfs = Arc::clone(&first.client.vfs);
        move || vfs.make(&Caller::user(0, 0), &request(2), ROOT, b"d", node(FileType::Dir))
    });
    let commit = reported.recv().unwrap();
    (first.kill(), commit)
}

#[test]
fn a_commit_that_was_under_way_and_comes_late_is_refused() {
    let volume = Volume::new();
    let (left, commit) = died_in_mkdir(&volume);
    let (second, _) = Process::take_up(&volume, left);
    let late = volume.engine.commit(&commit);
    assert!(matches!(late, Err(EngineError::Conflict(_))), "{late:?}");
    let Client { vfs, caller, .. } = &second.client;
    let made = vfs.make(caller, &again(2), ROOT, b"d", node(FileType::Dir)).unwrap();
    assert_eq!(second.client.lookup(ROOT, "d").unwrap().ino, made.ino);
    assert_eq!(vfs.make(caller, &again(4), ROOT, b"d", node(FileType::Dir)), Err(FsError::Exists));
    // Nor is it taken for done by the next one, for which the lane has come further.
    let (third, _) = second.replace(&volume);
    third.client.rmdir(ROOT, "d").unwrap();
    let Client { vfs, caller, .. } = &third.client;
    let _ = vfs.make(caller, &again(2), ROOT, b"d", node(FileType::Dir));
    let there = third.client.lookup(ROOT, "d").map(|_| ());
    assert_eq!(there, Err(FsError::NotFound), "the second process made it; that it was removed stays so");
}

#[test]
fn a_commit_that_was_under_way_and_arrived_is_known_to_have_happened() {
    let volume = Volume::new();
    let (left, commit) = died_in_mkdir(&volume);
    volume.engine.commit(&commit).unwrap();
    let (second, _) = Process::take_up(&volume, left);
    let there = second.client.lookup(ROOT, "d").unwrap().ino;
    let Client { vfs, caller, .. } = &second.client;
    assert_eq!(vfs.make(caller, &again(2), ROOT, b"d", node(FileType::Dir)).unwrap().ino, there);
}

#[test]
fn a_refused_commit_is_not_taken_for_one_that_got_its_number() {
    let volume = Volume::new();
    let (tell, reported) = mpsc::channel();
    let engine = Hooked::new(Arc::clone(&volume.engine) as _).before_commit(move |commit| {
        let makes = |name: &[u8]| {
            commit
                .writes
                .iter()
                .any(|write| matches!(write, Write::Insert(Row::Entry(_, made, _)) if **made == *name))
        };
        if makes(b"refused") {
            let _ = tell.send(());
            let reason = "the test refuses it".into();
            return Err(EngineError::Refused { engine: "test".into(), reason });
        }
        Ok(())
    });
    let first = Process::on(&volume, Arc::new(engine));
    let Client { vfs, caller, .. } = &first.client;
    let refused = vfs.make(caller, &request(2), ROOT, b"refused", node(FileType::Dir));
    assert!(matches!(refused, Err(FsError::Io(_))), "{refused:?}");
    reported.recv().unwrap();
    first.client.mkdir(ROOT, "next").unwrap();
    let (second, _) = first.replace(&volume);
    let Client { vfs, caller, .. } = &second.client;
    vfs.make(caller, &again(2), ROOT, b"refused", node(FileType::Dir)).unwrap();
    second.client.lookup(ROOT, "refused").unwrap();
}

#[test]
fn data_that_was_not_stored_is_lost_and_told_once_to_each_open_file() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let one = &first.client;
    let (dirty, by_sync) = one.create(ROOT, "dirty").unwrap();
    one.write(by_sync.fh, 0, b"stored").unwrap();
    one.vfs.fsync(&one.never, by_sync.fh).unwrap();
    one.write(by_sync.fh, 6, b" lost").unwrap();
    let by_close = one.open(dirty.ino, libc::O_RDWR).unwrap();
    let reads = one.open(dirty.ino, libc::O_RDONLY).unwrap();
    let (clean, untouched) = one.create(ROOT, "clean").unwrap();
    one.write(untouched.fh, 0, b"clean").unwrap();
    one.vfs.flush(untouched.fh, 0).unwrap();

    let (second, restored) = first.replace(&volume);
    assert_eq!(restored.lost, [dirty.ino]);
    // Another death before anybody was told.
    let (third, restored) = second.replace(&volume);
    assert_eq!(restored.lost, [dirty.ino], "the kernel may not have been told");
    let one = &third.client;
    assert_eq!(one.read(by_sync.fh, 0, 100).unwrap(), b"stored", "what fsync said is there");
    one.write(by_sync.fh, 6, b" anew").unwrap();
    assert!(matches!(one.vfs.fsync(&one.never, by_sync.fh), Err(FsError::Io(_))), "it is told");
    assert_eq!(one.vfs.fsync(&one.never, by_sync.fh), Ok(()), "once");
    assert_eq!(one.close(by_sync.fh), Ok(()));
    assert!(matches!(one.close(by_close.fh), Err(FsError::Io(_))), "each has its own");
    assert_eq!(one.close(reads.fh), Ok(()), "who wrote nothing lost nothing");
    assert_eq!(one.close(untouched.fh), Ok(()));
    assert_eq!((one.get(dirty.ino), one.get(clean.ino)), (b"stored anew".to_vec(), b"clean".to_vec()));
}

#[test]
fn what_was_appended_before_goes_to_the_same_place_when_it_is_asked_again() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let asked = |unique, again| Asked { unique, again };
    let (made, opened) = first.client.create(ROOT, "log").unwrap();
    let place = Place { fh: opened.fh, offset: 0 };
    first.client.write(opened.fh, 0, b"one ").unwrap();
    let never = &first.client.never;
    let at = first.client.vfs.append_by(never, asked(2, false), place, false).unwrap();
    assert_eq!(at, 4);
    first.client.write(opened.fh, at, b"two ").unwrap();
    first.client.vfs.fsync(&first.client.never, opened.fh).unwrap();
    let (second, _) = first.replace(&volume);
    let one = &second.client;
    let at = one.vfs.append_by(&one.never, asked(2, true), place, false).unwrap();
    one.write(opened.fh, at, b"two ").unwrap();
    one.length(made.ino).unwrap();
    let place = Place { offset: 4, ..place };
    let at = one.vfs.append_by(&one.never, asked(4, true), place, false).unwrap();
    one.write(opened.fh, at, b"three").unwrap();
    one.close(opened.fh).unwrap();
    assert_eq!(one.get(made.ino), b"one two three");
}

fn plock(ino: Ino, fh: u64, owner: u64) -> Plock {
    let range = PlockRange { write: true, pid: 7, start: 10, end: 19 };
    Plock { ino, fh, owner, range, unlock: false }
}

/// A process that holds a lock of each kind, each of another file, by these handles.
fn with_locks(volume: &Volume) -> (Process, [(Ino, u64); 2]) {
    let process = Process::start(volume);
    let one = &process.client;
    let files = ["flocked", "plocked"].map(|name| {
        let (made, opened) = one.create(ROOT, name).unwrap();
        (made.ino, opened.fh)
    });
    one.vfs.flock(&one.never, files[0], 1, Some(FlockKind::Write), false).unwrap();
    one.vfs.setlk(&one.never, plock(files[1].0, files[1].1, 2), false).unwrap();
    (process, files)
}

#[test]
fn locks_stay_held_until_their_handles_are_closed() {
    let volume = Volume::new();
    let (first, [flocked, plocked]) = with_locks(&volume);
    let other = volume.mount();
    let try_both = |other: &Client| {
        let flock = other.vfs.flock(&other.never, (flocked.0, 0), 5, Some(FlockKind::Write), false);
        (flock, other.vfs.setlk(&other.never, plock(plocked.0, 0, 6), false))
    };
    let (second, _) = first.replace(&volume);
    assert_eq!(try_both(&other), (Err(FsError::Again), Err(FsError::Again)));
    let (third, _) = second.replace(&volume);
    assert_eq!(try_both(&other), (Err(FsError::Again), Err(FsError::Again)));
    let vfs = &third.client.vfs;
    vfs.release(flocked.1, Some(1)).unwrap();
    // Nobody says whose locks go with it.
    vfs.release(plocked.1, None).unwrap();
    assert_eq!(try_both(&other), (Ok(()), Ok(())));
}

#[test]
fn locks_are_lost_with_a_session_that_others_took_for_dead() {
    let volume = Volume::new();
    let (first, files) = with_locks(&volume);
    let (made, unlocked) = first.client.create(ROOT, "unlocked").unwrap();
    let sid = first.client.vfs.meta().sid();
    let left = first.kill();
    let other = volume.mount();
    let meta = other.vfs.meta();
    let dead_before = Some(i64::MAX);
    meta.run(DropLocks { sid, dead_before }, &other.never).unwrap();
    meta.run(DropSession { sid, dead_before, keep_writer: false }, &other.never).unwrap();
    let (second, _) = Process::take_up(&volume, left);
    let one = &second.client;
    assert_ne!(one.vfs.meta().sid(), sid);
    for (_, fh) in files {
        assert!(matches!(one.write(fh, 0, b"x"), Err(FsError::Io(_))), "who relies on a lost lock is told");
    }
    one.write(unlocked.fh, 0, b"x").unwrap();
    one.close(unlocked.fh).unwrap();
    assert_eq!(other.get(made.ino), b"x");
}

#[test]
fn an_open_file_without_a_name_stays_until_it_is_closed() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let ino = first.client.put(ROOT, "f", b"content");
    let opened = first.client.open(ino, libc::O_RDONLY).unwrap();
    first.client.unlink(ROOT, "f").unwrap();
    let (second, _) = first.replace(&volume);
    let one = &second.client;
    assert_eq!(one.read(opened.fh, 0, 100).unwrap(), b"content");
    one.close(opened.fh).unwrap();
    assert_eq!(one.vfs.meta().sustained(&one.never).unwrap(), []);
    rig::eventually("its blocks are gone", || volume.objects() == 0);
    // A name that is removed under the successor's eyes is treated alike.
    let ino = one.put(ROOT, "g", b"content");
    let opened = one.open(ino, libc::O_RDONLY).unwrap();
    let (third, _) = second.replace(&volume);
    third.client.unlink(ROOT, "g").unwrap();
    assert_eq!(third.client.read(opened.fh, 0, 100).unwrap(), b"content");
    third.client.close(opened.fh).unwrap();
}

/// Names from `offset` on, at most `most`, and where to go on.
fn page(client: &Client, fh: u64, offset: u64, most: usize) -> (Vec<String>, u64) {
    let (mut names, mut next) = (Vec::new(), offset);
    let add = &mut |item: sluice_vfs::DirItem<'_>| {
        if names.len() == most {
            return false;
        }
        names.push(String::from_utf8(item.name.to_vec()).unwrap());
        next = item.cookie;
        true
    };
    client.vfs.readdir(&client.never, fh, (offset, false), add).unwrap();
    (names, next)
}

/// Files of a listing of more than one page.
const FILES: usize = 2500;

#[test]
fn a_listing_goes_on_where_it_was_although_what_it_gave_is_removed() {
    let volume = Volume::new();
    let mut process = Process::start(&volume);
    let dir = process.client.mkdir(ROOT, "d").unwrap().ino;
    for number in 0..FILES {
        process.client.make(dir, &format!("f{number}"), FileType::Fifo).unwrap();
    }
    let fh = process.client.vfs.opendir(dir).unwrap();
    let (mut seen, mut offset) = (HashSet::new(), 0);
    loop {
        let (names, next) = page(&process.client, fh, offset, 700);
        if names.is_empty() {
            break;
        }
        offset = next;
        for name in names.into_iter().filter(|name| !name.starts_with('.')) {
            process.client.unlink(dir, &name).unwrap();
            assert!(seen.insert(name), "a name comes once");
        }
        process = process.replace(&volume).0;
    }
    assert_eq!(seen.len(), FILES, "all of them came");
    process.client.vfs.releasedir(fh);
    process.client.rmdir(ROOT, "d").unwrap();
}

#[test]
fn nothing_is_lost_when_a_process_hands_over() {
    let volume = Volume::new();
    let (first, [(ino, fh), _]) = with_locks(&volume);
    first.client.write(fh, 0, b"written").unwrap();
    first.client.vfs.hand_over().unwrap();
    let (second, restored) = first.replace(&volume);
    assert_eq!(restored.lost, []);
    assert_eq!(second.client.close(fh), Ok(()));
    assert_eq!(second.client.get(ino), b"written");
    second.client.vfs.close(None).unwrap();
}

#[test]
fn a_journal_of_another_version_is_refused() {
    let journal = Journal::create().unwrap();
    Journal::check(journal.file()).unwrap();
    journal.file().write_all_at(&99_u32.to_le_bytes(), 8).unwrap();
    assert!(matches!(Journal::check(journal.file()), Err(JournalError::Version(99))));
    journal.file().write_all_at(b"X", 0).unwrap();
    let file = journal.file().try_clone().unwrap();
    assert!(matches!(Journal::open(file), Err(JournalError::Foreign)));
}

/// How an engine is that answers most of what it is asked with nothing.
const UNRELIABLE: Chances =
    Chances { read: 300, unavailable: 200, conflict: 100, lost_applied: 250, lost: 250, late: 0 };

/// Threads that make, move and remove names of their own, each step of which fails if it is done
/// twice.
const THREADS: usize = 4;
const ROUND: u64 = 8;

fn step_of(client: &Client, thread: usize, step: u64, by: &Interrupt) -> Result<(), FsError> {
    let (vfs, caller) = (&client.vfs, &client.caller);
    let name = |letter: &str| format!("{letter}{thread}").into_bytes();
    let (flags, mode) = (libc::O_RDWR | libc::O_EXCL, RenameMode::NoReplace);
    match step % ROUND {
        0 => vfs.make(caller, by, ROOT, &name("a"), node(FileType::Dir)).map(drop),
        1 => vfs.rename(caller, by, (ROOT, &name("a")), (ROOT, &name("b")), mode),
        2 => vfs.rmdir(caller, by, ROOT, &name("b")),
        3 => {
            let (_, opened) = vfs.create(caller, by, ROOT, &name("f"), node(FileType::File), flags)?;
            vfs.release(opened.fh, None)
        }
        4 => {
            let ino = client.lookup(ROOT, &format!("f{thread}"))?.ino;
            vfs.link(caller, by, ino, ROOT, &name("g")).map(drop)
        }
        5 => vfs.rename(caller, by, (ROOT, &name("f")), (ROOT, &name("h")), mode),
        6 => vfs.unlink(caller, by, ROOT, &name("g")),
        _ => vfs.unlink(caller, by, ROOT, &name("h")),
    }
}

/// What the threads of a process have got done, and whether it is dead.
#[derive(Default)]
struct Progress {
    steps: [u64; THREADS],
    commits: u64,
    /// Whether it has begun to serve.
    serves: bool,
    dead: bool,
    /// Commits that a dead process had sent and that have not arrived.
    late: Vec<Commit>,
}

fn sleep_for_ever() -> ! {
    loop {
        thread::park();
    }
}

/// An engine whose process dies with commit number `last`: of what is sent from then on some has
/// arrived, some comes late, some never.
fn mortal(volume: &Volume, progress: &Arc<(Mutex<Progress>, Condvar)>, last: u64, seed: u64) -> Hooked {
    let (engine, progress) = (Arc::clone(&volume.engine), Arc::clone(progress));
    let rng = Mutex::new(Rng::seeded(seed));
    Hooked::new(Arc::clone(&volume.engine) as _).before_commit(move |commit| {
        let mut state = progress.0.lock().unwrap();
        state.commits += u64::from(state.serves);
        if state.dead || state.commits < last {
            let dead = state.dead;
            drop(state);
            return if dead { sleep_for_ever() } else { Ok(()) };
        }
        match rng.lock().unwrap().below(3) {
            0 => engine.commit(commit).unwrap_or(()),
            1 => state.late.push(commit.clone()),
            _ => {}
        }
        state.dead = true;
        progress.1.notify_all();
        drop(state);
        sleep_for_ever()
    })
}

#[test]
fn whatever_was_under_way_when_a_process_died_is_done_once() {
    let seed = Rng::from_os().below(u64::MAX);
    println!("seed {seed}");
    let mut rng = Rng::seeded(seed);
    let volume = Volume::new();
    let mut left: Option<File> = None;
    let mut steps = [0; THREADS];
    for _ in 0..40 {
        let progress = Arc::new((Mutex::new(Progress { steps, ..Progress::default() }), Condvar::new()));
        let engine = Arc::new(mortal(&volume, &progress, 3 + rng.below(40), rng.below(u64::MAX)));
        let process = match left.take() {
            None => Process::on(&volume, engine),
            Some(file) => {
                let (journal, past) = Journal::open(file).unwrap();
                let process = Process::open(&volume, engine, journal, Some(&past));
                process.client.vfs.restore(past).unwrap();
                process
            }
        };
        progress.0.lock().unwrap().serves = true;
        for (thread, first) in steps.into_iter().enumerate() {
            let (vfs, progress) = (Arc::clone(&process.client.vfs), Arc::clone(&progress));
            thread::spawn(move || {
                let client = Client { vfs, caller: Caller::user(0, 0), never: Interrupt::never() };
                for step in first.. {
                    let unique = 2 + 2 * (step * THREADS as u64 + thread as u64);
                    let by = Interrupt::of_request(Asked { unique, again: step == first });
                    let done = step_of(&client, thread, step, &by);
                    let mut state = progress.0.lock().unwrap();
                    if state.dead {
                        drop(state);
                        sleep_for_ever();
                    }
                    assert_eq!(done, Ok(()), "thread {thread}, step {step} (seed {seed})");
                    state.steps[thread] = step + 1;
                }
            });
        }
        let state = progress.0.lock().unwrap();
        let deadline = Duration::from_mins(2);
        let (state, timeout) = progress.1.wait_timeout_while(state, deadline, |state| !state.dead).unwrap();
        assert!(!timeout.timed_out(), "a thread has failed, or all hang (seed {seed})");
        steps = state.steps;
        let late: Vec<Commit> = state.late.clone();
        drop(state);
        let file = process.kill();
        // The fences come before what is late: a successor that only takes up and dies.
        let (journal, past) = Journal::open(file.try_clone().unwrap()).unwrap();
        let engine = Faulty::new(Arc::clone(&volume.engine) as _, rng.below(u64::MAX), UNRELIABLE);
        let taken = Process::open(&volume, Arc::new(engine), journal, Some(&past));
        for commit in late {
            let answer = volume.engine.commit(&commit);
            assert!(matches!(answer, Err(EngineError::Conflict(_))), "{answer:?} (seed {seed})");
        }
        left = Some(taken.kill());
    }
    assert!(steps.iter().sum::<u64>() > 60, "{steps:?}");
}

#[test]
fn a_cut_that_was_done_does_not_cut_what_was_written_since() {
    let volume = Volume::new();
    let first = Process::start(&volume);
    let ino = first.client.put(ROOT, "f", b"content");
    let cut = |client: &Client, by: &Interrupt| {
        client.vfs.truncate(&client.caller, by, ino, (3, None), false).unwrap().length
    };
    assert_eq!(cut(&first.client, &request(2)), 3);
    let (second, _) = first.replace(&volume);
    let opened = second.client.open(ino, libc::O_RDWR).unwrap();
    second.client.write(opened.fh, 3, b"fident").unwrap();
    second.client.close(opened.fh).unwrap();
    assert_eq!(cut(&second.client, &again(2)), 9);
    assert_eq!(second.client.get(ino), b"confident");
    assert_eq!(cut(&second.client, &again(4)), 3, "another one");
}
