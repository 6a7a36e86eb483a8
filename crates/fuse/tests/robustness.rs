//! What happens when things go wrong: handlers that hang or panic, callers and servers that are
//! killed, mounts that end under load.

mod memfs;
mod rig;

use std::{
    env,
    fs::{self, File},
    os::unix::{
        fs::{FileExt, OpenOptionsExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use memfs::{Behaviour, MemFs, Op};
use rig::{LONG, Mounted, is_mounted, join, no_fuse, reap, start_part, until};
use sluice_fuse::{Config, MountError, MountOptions, Session, clear_dead, is_dead};

over_both!(
    blocked_handlers_do_not_stop_others,
    quick_handlers_that_block_for_once_do_not_stop_others,
    of_hundreds_of_blocked_readers_none_is_lost,
    hundreds_of_blocked_readers_do_not_keep_a_mount,
    at_the_limit_interrupts_still_arrive_and_nothing_is_lost,
    however_many_are_blocked_somebody_reads,
    an_interrupted_operation_ends,
    killed_callers_never_hang_wherever_their_request_is,
    a_hung_handler_is_answered_at_the_deadline,
    late_answers_to_unlocks_leave_as_many_readers_as_there_were,
    a_connection_that_is_cut_answers_until_it_is_unmounted,
    waiting_for_a_lock_has_no_deadline,
    a_panic_is_an_error_of_one_operation,
    an_end_under_load_hangs_nobody,
    a_handler_that_never_returns_does_not_keep_the_session,
    an_idle_mount_ends_when_anybody_unmounts_it,
    a_killed_server_shows_nobody_the_folder_below,
    a_dead_mount_is_replaced_and_the_folder_below_never_seen,
);

/// A user who may nothing.
const NOBODY: u32 = 65534;

/// What a handler may take where some hang: so long that none that works is late on a machine that
/// is busy, and well below [`LONG`].
const DEADLINE: Duration = Duration::from_secs(3);

/// Nothing is cached, every stat is a request.
fn uncached() -> Behaviour {
    Behaviour { attr_ttl: Duration::ZERO, ..Behaviour::default() }
}

fn write(m: &Mounted, name: &str, content: &str) -> PathBuf {
    fs::write(m.path(name), content).expect("write");
    m.path(name)
}

/// Reads at different offsets are different requests, and none is read-ahead.
fn read_at(path: &Path, offset: u64) -> std::io::Result<usize> {
    File::open(path)?.read_at(&mut [0], offset)
}

/// How many handlers can be blocked with `max_readers: 4`: beside rings, other threads read.
fn most_blocked() -> usize {
    if rig::over_rings() { 4 } else { 3 }
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cat")
}

fn blocked_handlers_do_not_stop_others() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    let other = write(&m, "other", "content");
    let waits: Vec<_> = (0..50).map(|i| write(&m, &format!("wait{i}"), "wait")).collect();
    let blocked: Vec<_> = waits.into_iter().map(|path| thread::spawn(move || read_at(&path, 0))).collect();
    until("50 handlers are blocked", || m.fs.gate.waiting.load(Ordering::Relaxed) == 50);
    let asked = m.fs.counts.of(Op::Getattr);
    for _ in 0..100 {
        fs::metadata(&other).expect("stat");
    }
    assert_eq!(m.fs.counts.of(Op::Getattr), asked + 100);
    m.fs.gate.open();
    for thread in blocked {
        join("a blocked read ends", thread).expect("read");
    }
}

fn quick_handlers_that_block_for_once_do_not_stop_others() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    let other = write(&m, "other", "content");
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(direct).open(&other).expect("open");
    for _ in 0..1000 {
        assert_eq!(file.read_at(&mut [0; 7], 0).expect("read"), 7);
    }
    let waits: Vec<_> = (0..20).map(|i| write(&m, &format!("wait{i}"), "wait")).collect();
    let blocked: Vec<_> = waits.into_iter().map(|path| thread::spawn(move || read_at(&path, 0))).collect();
    until("all are blocked", || m.fs.gate.waiting.load(Ordering::Relaxed) == 20);
    for _ in 0..100 {
        fs::metadata(&other).expect("stat");
        file.read_at(&mut [0; 7], 0).expect("read");
    }
    m.fs.gate.open();
    for thread in blocked {
        join("a blocked read ends", thread).expect("read");
    }
}

/// Readers of a file whose reading blocks.
fn block(m: &Mounted, count: usize) -> Vec<thread::JoinHandle<std::io::Result<usize>>> {
    let path = write(m, "wait", "wait");
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = Arc::new(File::options().read(true).custom_flags(direct).open(path).expect("open"));
    let read = |_| {
        let file = Arc::clone(&file);
        thread::spawn(move || file.read_at(&mut [0], 0))
    };
    (0..count).map(read).collect()
}

fn of_hundreds_of_blocked_readers_none_is_lost() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    let other = write(&m, "other", "content");
    let blocked = block(&m, 400);
    until("as many run as may", || m.fs.gate.waiting.load(Ordering::Relaxed) >= 255);
    m.fs.gate.open();
    for thread in blocked {
        join("a blocked read ends", thread).expect("read");
    }
    fs::metadata(&other).expect("stat");
}

fn hundreds_of_blocked_readers_do_not_keep_a_mount() {
    if no_fuse() {
        return;
    }
    let mut m = Mounted::new(uncached(), Config::default());
    // More than the slots of a ring, too.
    let blocked = block(&m, 700);
    until("as many run as may", || m.fs.gate.waiting.load(Ordering::Relaxed) >= 255);
    assert!(matches!(m.handle.unmount(), Err(MountError::Busy(_))));
    m.handle.shutdown(Duration::from_millis(200)).expect("shutdown");
    m.ended();
    for thread in blocked {
        join("a reader ends", thread).expect_err("the connection is cut");
    }
    assert_eq!(m.handle.readers(), 0, "no thread is left");
}

fn at_the_limit_interrupts_still_arrive_and_nothing_is_lost() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config { idle_readers: 2, max_readers: 4, ..Config::default() });
    let paths: Vec<_> = (0..12).map(|i| write(&m, &format!("wait{i}"), "wait")).collect();
    let mut killed: Vec<_> = paths[..6].iter().map(|path| cat(path)).collect();
    until("as many as may are blocked", || m.fs.gate.waiting.load(Ordering::Relaxed) == most_blocked());
    for child in &mut killed {
        child.kill().expect("kill");
    }
    for child in &mut killed {
        assert!(!reap("a killed caller ends", child).success());
    }
    until("every handler has given up", || m.fs.gate.waiting.load(Ordering::Relaxed) == 0);
    let mut waiting: Vec<_> = paths[6..].iter().map(|path| cat(path)).collect();
    until("as many as may are blocked again", || m.fs.gate.waiting.load(Ordering::Relaxed) == most_blocked());
    m.fs.gate.open();
    for child in &mut waiting {
        assert!(reap("a caller gets its answer", child).success());
    }
    fs::metadata(m.path("wait0")).expect("stat");
}

fn however_many_are_blocked_somebody_reads() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config { idle_readers: 2, max_readers: 4, ..Config::default() });
    let paths: Vec<_> = (0..90).map(|i| write(&m, &format!("wait{i}"), "wait")).collect();
    let mut blocked: Vec<_> = paths.iter().map(|path| cat(path)).collect();
    until("as many as may are blocked", || m.fs.gate.waiting.load(Ordering::Relaxed) == most_blocked());
    for child in &mut blocked {
        child.kill().expect("kill");
    }
    for child in &mut blocked {
        assert!(!reap("a killed caller ends", child).success());
    }
    m.fs.gate.open();
    fs::metadata(m.path("wait0")).expect("stat");
}

fn an_interrupted_operation_ends() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    for round in 0..20 {
        let path = write(&m, &format!("wait{round}"), "wait");
        let mut child = cat(&path);
        until("it waits", || m.fs.gate.waiting.load(Ordering::Relaxed) == 1);
        child.kill().expect("kill");
        assert!(!reap("a killed caller ends", &mut child).success());
        until("its handler too", || m.fs.counts.of(Op::Interrupted) == round + 1);
    }
}

fn killed_callers_never_hang_wherever_their_request_is() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    let path = write(&m, "wait", "wait");
    for _ in 0..100 {
        // Killed at any moment: before the request is read, before it is taken note of, or later.
        let mut child = cat(&path);
        child.kill().expect("kill");
        reap("a killed caller ends", &mut child);
    }
    until("every handler has given up", || m.fs.gate.waiting.load(Ordering::Relaxed) == 0);
}

fn a_hung_handler_is_answered_at_the_deadline() {
    if no_fuse() {
        return;
    }
    let deadline = Some(DEADLINE);
    let m = Mounted::new(uncached(), Config { deadline, max_readers: 3, ..Config::default() });
    let paths: Vec<_> = (0..10).map(|i| write(&m, &format!("hang{i}"), "hang")).collect();
    let hung: Vec<_> = paths.iter().cloned().map(|path| thread::spawn(move || read_at(&path, 0))).collect();
    for thread in hung {
        let error = join("a hung read ends", thread).expect_err("nobody answered it");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    let other = write(&m, "other", "content");
    assert_eq!(fs::read(&other).expect("the rest works, though more hang than may run"), b"content");
    m.fs.gate.open();
    until("late handlers come back", || m.fs.gate.waiting.load(Ordering::Relaxed) == 0);
    assert_eq!(read_at(&paths[0], 0).expect("their answers did no harm"), 0);
}

fn late_answers_to_unlocks_leave_as_many_readers_as_there_were() {
    if no_fuse() {
        return;
    }
    let deadline = Some(DEADLINE);
    let config = Config { deadline, idle_readers: 2, max_readers: 3, ..Config::default() };
    let m = Mounted::new(uncached(), config);
    let files: Vec<File> = (0..12)
        .map(|i| {
            let file = File::open(write(&m, &format!("hang{i}"), "hang")).expect("open");
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("flock");
            file
        })
        .collect();
    let unlock = |file: File| {
        thread::spawn(move || {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingUnlock).expect_err("late")
        })
    };
    for thread in files.into_iter().map(unlock).collect::<Vec<_>>() {
        assert_eq!(join("a hung unlock ends", thread).raw_os_error(), libc::EIO);
    }
    m.fs.gate.open();
    until("late handlers come back", || m.fs.gate.waiting.load(Ordering::Relaxed) == 0);
    let other = write(&m, "other", "content");
    assert_eq!(fs::read(&other).expect("it is served"), b"content");
    // At once, and not as one that is not needed after a rest of ten seconds.
    let end = Instant::now() + Duration::from_secs(5);
    // Rings have a thread each, one that looks at them, and two readers beside them.
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let most = 3 + if rig::over_rings() { cpus + 3 } else { 0 };
    while m.handle.readers() > most {
        assert!(
            Instant::now() < end,
            "{} readers, none of those that were given up ended",
            m.handle.readers()
        );
        thread::yield_now();
    }
}

fn a_connection_that_is_cut_answers_until_it_is_unmounted() {
    if no_fuse() {
        return;
    }
    let mut m = Mounted::new(uncached(), Config::default());
    let at = m.handle.mountpoint().to_owned();
    m.handle.abort().expect("abort");
    m.ended();
    assert!(is_mounted(&at), "nobody unmounted it");
    let error = fs::write(at.join("f"), "x").expect_err("nobody serves it");
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    assert!(clear_dead(&at).expect("clear"), "it was dead");
    assert!(!is_mounted(&at));
    assert_eq!(fs::read_dir(&at).expect("the directory below").count(), 0);
}

fn waiting_for_a_lock_has_no_deadline() {
    if no_fuse() {
        return;
    }
    let deadline = Some(DEADLINE);
    let m = Mounted::new(uncached(), Config { deadline, ..Config::default() });
    let (lock, hang) = (write(&m, "lock", ""), write(&m, "hang", "hang"));
    let mine = File::open(&lock).expect("open");
    rustix::fs::flock(&mine, rustix::fs::FlockOperation::LockExclusive).expect("flock");
    let mut waiter = Command::new("flock").arg(&lock).args(["--command", "true"]).spawn().expect("flock(1)");
    until("it waits", || m.fs.counts.of(Op::Flock) == 2);
    for offset in 0..2 {
        read_at(&hang, offset).expect_err("each takes the deadline's time");
    }
    assert!(waiter.try_wait().expect("wait").is_none(), "the lock's waiter is still there");
    drop(mine);
    assert!(reap("the lock is granted", &mut waiter).success());
}

fn a_panic_is_an_error_of_one_operation() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(uncached(), Config::default());
    let path = write(&m, "panic", "panic");
    for _ in 0..10 {
        assert_eq!(read_at(&path, 0).expect_err("it panicked").raw_os_error(), Some(libc::EIO));
    }
    fs::metadata(&path).expect("the mount lives");
}

fn an_end_under_load_hangs_nobody() {
    if no_fuse() {
        return;
    }
    let config = Config { shutdown_timeout: Duration::from_secs(5), ..Config::default() };
    let mut m = Mounted::new(uncached(), config);
    let mut load = Vec::new();
    for i in 0..4 {
        let path = write(&m, &format!("wait{i}"), "wait");
        load.push(thread::spawn(move || drop(read_at(&path, 0))));
    }
    for i in 0..8 {
        let path = m.path(&format!("f{i}"));
        let handle = m.handle.clone();
        load.push(thread::spawn(move || {
            while fs::write(&path, [i; 10_000]).and_then(|()| fs::remove_file(&path)).is_ok()
                && !handle.is_gone()
            {}
        }));
    }
    until("all are at work", || {
        m.fs.counts.of(Op::Unlink) > 500 && m.fs.gate.waiting.load(Ordering::Relaxed) == 4
    });
    assert!(matches!(m.handle.unmount(), Err(MountError::Busy(_))));
    m.handle.shutdown(Duration::from_millis(200)).expect("shutdown");
    m.ended();
    for thread in load {
        join("the load ends", thread);
    }
    assert!(!is_mounted(m.handle.mountpoint()));
    assert_eq!(m.fs.counts.of(Op::Destroy), 1);
}

fn a_handler_that_never_returns_does_not_keep_the_session() {
    if no_fuse() {
        return;
    }
    let config = Config { shutdown_timeout: Duration::from_millis(100), ..Config::default() };
    let mut m = Mounted::new(uncached(), config);
    let path = write(&m, "hang", "hang");
    let reader = thread::spawn(move || read_at(&path, 0));
    until("it hangs", || m.fs.gate.waiting.load(Ordering::Relaxed) == 1);
    m.handle.shutdown(Duration::from_millis(100)).expect("shutdown");
    m.ended();
    join("the caller gets an error", reader).expect_err("the connection is cut");
}

fn an_idle_mount_ends_when_anybody_unmounts_it() {
    if no_fuse() {
        return;
    }
    let mut m = Mounted::new(uncached(), Config::default());
    let at = m.handle.mountpoint().to_owned();
    assert!(Command::new("umount").arg(&at).status().expect("umount(8)").success());
    m.ended();
    assert!(m.handle.is_gone());
    m.handle.unmount().expect("it is unmounted");
}

/// A server of its own that can be killed.
struct Server(Child);

impl Server {
    fn start(mut command: Command, at: &Path) -> Self {
        let mut server = Self(command.stdout(Stdio::null()).spawn().expect("server"));
        until("the server serves", || {
            assert!(server.0.try_wait().expect("wait").is_none(), "the server ended");
            is_mounted(at)
        });
        fs::metadata(at).ok();
        server
    }

    fn kill(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_killed_server_shows_nobody_the_folder_below() {
    if no_fuse() {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let program = env::current_exe().expect("program");
    let mut server = Server::start(start_part(&program, "server", dir.path()), dir.path());
    let hang = dir.path().join("hang");
    fs::write(&hang, "hang").expect("write");
    let mut caller = cat(&hang);
    server.kill();
    assert!(!reap("the caller ends", &mut caller).success());
    assert_eq!(until_error(dir.path()).raw_os_error(), Some(libc::ENOTCONN));
    let error = fs::write(dir.path().join("f"), "x").expect_err("nobody serves it");
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    assert!(clear_dead(dir.path()).expect("clear"), "it was dead");
    assert!(!is_mounted(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).expect("the directory below").count(), 0);
}

fn a_dead_mount_is_replaced_and_the_folder_below_never_seen() {
    if no_fuse() {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let program = env::current_exe().expect("program");
    let below = dir.path().join("below");
    fs::write(&below, "").expect("write");
    let mut server = Server::start(start_part(&program, "server", dir.path()), dir.path());
    let old = fs::write(dir.path().join("old"), "x").and_then(|()| File::open(dir.path().join("old")));
    let old = old.expect("open");
    server.kill();
    let error = until_error(dir.path());
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    let (replaced, looking) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let watcher = thread::spawn({
        let (below, replaced, looking) = (below.clone(), Arc::clone(&replaced), Arc::clone(&looking));
        move || {
            while !replaced.load(Ordering::Relaxed) {
                assert!(fs::metadata(&below).is_err(), "the folder below was seen");
                looking.store(true, Ordering::Relaxed);
            }
        }
    });
    until("somebody looks", || looking.load(Ordering::Relaxed));
    let session = Session::mount(
        MemFs::new(Behaviour::default()),
        dir.path(),
        &MountOptions::new("memory", "memfs"),
        Config::default(),
    )
    .expect("mount over a dead mount");
    let handle = session.handle();
    let served = thread::spawn(move || session.run());
    fs::write(dir.path().join("f"), "x").expect("write");
    replaced.store(true, Ordering::Relaxed);
    join("the watcher ends", watcher);
    let error = old.metadata().expect_err("its mount is dead");
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    handle.unmount().expect("unmount");
    join("the session ends", served).expect("session");
    assert!(!is_mounted(dir.path()), "nothing is left below it");
    assert!(fs::metadata(&below).is_ok());
    assert!(!clear_dead(dir.path()).expect("clear"), "nothing is dead any more");
}

fn until_error(path: &Path) -> std::io::Error {
    let end = Instant::now() + LONG;
    loop {
        match rustix::fs::statfs(path) {
            // What was about to be put into a ring.
            Err(rustix::io::Errno::CANCELED) if rig::over_rings() => {}
            Err(rustix::io::Errno::CONNABORTED) | Ok(_) => assert!(Instant::now() < end, "it never died"),
            Err(why) => return why.into(),
        }
    }
}

/// Lets everybody open `/dev/fuse`, as udev does, for a while: containers often lack that.
struct OpenToAll(fs::Permissions);

impl OpenToAll {
    fn new() -> Self {
        let before = fs::metadata("/dev/fuse").expect("/dev/fuse").permissions();
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).expect("chmod");
        Self(before)
    }
}

impl Drop for OpenToAll {
    fn drop(&mut self) {
        let _ = fs::set_permissions("/dev/fuse", self.0.clone());
    }
}

#[test]
fn users_mount_through_fusermount3() {
    if no_fuse() {
        return;
    }
    let _open = OpenToAll::new();
    let dir = tempfile::tempdir().expect("directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let (program, at) = (dir.path().join("program"), dir.path().join("mnt"));
    // Not by this process: another thread might fork while it is open for writing.
    let copy = Command::new("cp").arg(env::current_exe().expect("program")).arg(&program).status();
    assert!(copy.expect("cp").success());
    fs::create_dir(&at).expect("mkdir");
    chown(&at, Some(NOBODY), Some(NOBODY)).expect("chown");
    let as_nobody = |role| {
        let mut command = start_part(&program, role, &at);
        command.uid(NOBODY).gid(NOBODY).env("TMPDIR", "/tmp").current_dir("/");
        command
    };
    let mut server = Server::start(as_nobody("server"), &at);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    assert!(mounts.contains("user_id=65534"), "{mounts}");
    assert!(as_nobody("use").status().expect("use").success(), "its user may use it");
    server.kill();
    assert!(is_mounted(&at), "nobody unmounted it");
    assert!(as_nobody("again").status().expect("again").success(), "its user cannot replace it");
    assert!(as_nobody("clear").status().expect("clear").success(), "its user may take it away");
    assert!(!is_mounted(&at));

    // It may be gone before anybody sees it mounted.
    let mut short = Server(as_nobody("short server").stdout(Stdio::null()).spawn().expect("server"));
    assert!(reap("it unmounts by itself", &mut short.0).success());
    assert!(!is_mounted(&at));
}

/// What this program does when a test starts it once more.
#[test]
#[ignore = "a part that other tests start"]
fn part() {
    let role = env::var("PART").expect("PART");
    let at = PathBuf::from(env::var_os("PART_PATH").expect("PART_PATH"));
    if role == "use" {
        fs::write(at.join("f"), "x").expect("write");
        assert_eq!(fs::read(at.join("f")).expect("read"), b"x");
        return;
    }
    if role == "clear" {
        assert!(clear_dead(&at).expect("clear"), "it was dead");
        return;
    }
    let mut options = MountOptions::new("memory", "memfs");
    options.io_uring = rig::over_rings();
    if role == "again" {
        until("it is dead", || is_dead(&at));
        let refused = Session::mount(MemFs::new(uncached()), &at, &options, Config::default());
        assert!(matches!(refused, Err(MountError::Dead(_))), "{refused:?}");
        return;
    }
    let session = Session::mount(MemFs::new(uncached()), &at, &options, Config::default()).expect("mount");
    let handle = session.handle();
    let served = thread::spawn(move || session.run());
    if role == "short server" {
        fs::write(at.join("f"), "x").expect("write");
        handle.shutdown(LONG).expect("unmount");
    }
    served.join().expect("thread").expect("session");
}
