//! Real mounts for tests.
//!
//! What must stay true: a mount ends with its test, however that ends.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses its own part of it")]

use std::{
    cell::Cell,
    env, fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use sluice_fuse::{Config, FileSystem, MountError, MountOptions, Session, SessionHandle};
pub use sluice_testkit::fuse::no_fuse;
use sluice_testkit::{fuse::no_rings, wait};
use tempfile::TempDir;

use crate::memfs::{Behaviour, MemFs};

/// Longer than anything takes that works.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits until `done`.
#[track_caller]
pub fn until(what: &str, done: impl FnMut() -> bool) {
    wait::until(what, LONG, done).unwrap_or_else(|why| panic!("{why}"));
}

/// Joins a thread that should end soon.
#[track_caller]
pub fn join<T>(what: &str, thread: JoinHandle<T>) -> T {
    until(what, || thread.is_finished());
    thread.join().expect("thread")
}

/// Waits for a process that should end soon.
#[track_caller]
pub fn reap(what: &str, child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    until(what, || {
        status = child.try_wait().expect("wait");
        status.is_some()
    });
    status.expect("status")
}

/// Whether something is mounted on `path`; asks no file system.
pub fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").expect("mountinfo");
    mounts
        .split(|b| *b == b'\n')
        .any(|line| line.split(|b| *b == b' ').nth(4) == Some(path.as_os_str().as_bytes()))
}

/// A mount that ends with the test.
pub struct Mounted {
    pub fs: Arc<MemFs>,
    pub handle: SessionHandle,
    served: Option<JoinHandle<Result<(), MountError>>>,
    dir: TempDir,
}

/// How requests come to the mounts of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// From `/dev/fuse`.
    Device,
    /// Through `io_uring`.
    Rings,
}

thread_local!(static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::Device) });

/// Runs a test over a transport.
pub fn over(transport: Transport, test: fn()) {
    if transport == Transport::Rings && no_rings() {
        return;
    }
    TRANSPORT.set(transport);
    test();
}

/// Whether this test, or the test that started this program, is about rings.
pub fn over_rings() -> bool {
    TRANSPORT.get() == Transport::Rings || env::var_os("PART_RINGS").is_some()
}

/// Each test over both transports.
#[macro_export]
macro_rules! over_both {
    ($($test:ident),* $(,)?) => {
        mod device {
            $(#[test] fn $test() { super::rig::over(super::rig::Transport::Device, super::$test); })*
        }
        mod rings {
            $(#[test] fn $test() { super::rig::over(super::rig::Transport::Rings, super::$test); })*
        }
    };
}

impl Mounted {
    pub fn new(behaviour: Behaviour, config: Config) -> Self {
        let fs = MemFs::new(behaviour);
        let dir = tempfile::tempdir().expect("directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut options = MountOptions::new("memory", "memfs");
        options.apply("allow_other").expect("options");
        options.io_uring = over_rings();
        let served = Arc::clone(&fs) as Arc<dyn FileSystem>;
        let session = Session::mount(served, dir.path(), &options, config).expect("mount");
        let handle = session.handle();
        let served = Some(thread::spawn(move || session.run()));
        if over_rings() {
            until("rings serve", || handle.uses_io_uring());
        }
        Self { fs, handle, served, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until it is served no more.
    #[track_caller]
    pub fn ended(&mut self) {
        let served = self.served.take().expect("ends once");
        join("the session ends", served).expect("session");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.fs.gate.open();
        let ended = self.handle.shutdown(Duration::from_secs(2));
        if let Some(served) = self.served.take()
            && !thread::panicking()
        {
            ended.expect("unmount");
            join("the session ends", served).expect("session");
        }
    }
}

/// Starts this test program again, to play a part of its own (see the test `part`).
pub fn start_part(program: &Path, role: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["part", "--exact", "--ignored", "--nocapture"]).env("PART", role).env("PART_PATH", path);
    if over_rings() {
        command.env("PART_RINGS", "1");
    }
    command
}
