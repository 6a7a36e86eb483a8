//! Files that are deleted while they are being opened, in one client.

#![allow(clippy::unwrap_used, reason = "a test may panic wherever it fails")]

mod rig;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rig::{Client, Volume};
use sluice_meta::{
    engine::{Commit, EngineError, Write},
    mem::MemEngine,
    schema::Key,
};
use sluice_testkit::wrap::{Counting, Hooked};
use sluice_types::{FsError, Ino};
use sluice_vfs::Interrupt;

const ROOT: Ino = Ino::ROOT;
/// Long enough for an open that does not wait to be answered.
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);

/// A volume whose next commit that destroys a node waits for the test.
struct Held {
    client: Client,
    armed: Arc<AtomicBool>,
    reached: Receiver<()>,
    go: Sender<Result<(), EngineError>>,
}

impl Held {
    fn new() -> Self {
        let mem = MemEngine::new();
        let (reach, reached) = channel();
        let (go, wait) = channel();
        let (gates, armed) = (Mutex::new((reach, wait)), Arc::new(AtomicBool::new(false)));
        let holds = Arc::clone(&armed);
        let hooked = Hooked::new(Arc::new(mem)).before_commit(move |commit: &Commit| {
            let destroys = |write: &Write| matches!(write, Write::Delete(Key::Node(_)));
            if !commit.writes.iter().any(destroys) || !holds.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
            let gates = gates.lock();
            gates.0.send(()).unwrap();
            gates.1.recv_timeout(LONG).unwrap()
        });
        let volume = Volume::over(Arc::new(Counting::new(Arc::new(hooked))));
        Self { client: volume.mount(), armed, reached, go }
    }

    /// Unlinks a file, lets `open` happen once the commit is on its way, and ends the commit with
    /// `answer` once it is answered or has waited.
    fn open_during_unlink<T: Send>(
        &self,
        answer: Result<(), EngineError>,
        before: impl FnOnce(),
        open: impl FnOnce() -> T + Send,
    ) -> (Result<(), FsError>, T) {
        self.armed.store(true, Ordering::SeqCst);
        let client = &self.client;
        thread::scope(|scope| {
            let unlink = scope.spawn(|| client.unlink(ROOT, "f"));
            self.reached.recv_timeout(LONG).unwrap();
            let (done, answered) = channel();
            scope.spawn(move || done.send(open()).unwrap());
            let early = answered.recv_timeout(SOON).ok();
            before();
            self.go.send(answer).unwrap();
            let unlinked = unlink.join().unwrap();
            (unlinked, early.unwrap_or_else(|| answered.recv_timeout(LONG).unwrap()))
        })
    }
}

#[test]
fn an_open_beside_the_commit_of_an_unlink_does_not_get_a_file_that_goes() {
    let held = Held::new();
    let client = &held.client;
    let ino = client.put(ROOT, "f", b"content");
    let open = || client.open(ino, libc::O_RDONLY);
    let (unlinked, opened) = held.open_during_unlink(Ok(()), || {}, open);
    assert_eq!(unlinked, Ok(()));
    match opened {
        Ok(opened) => assert_eq!(held.client.read(opened.fh, 0, 100).unwrap(), b"content"),
        Err(error) => assert_eq!(error, FsError::NotFound),
    }
}

#[test]
fn an_open_beside_an_unlink_that_fails_gets_the_file() {
    let held = Held::new();
    let client = &held.client;
    let ino = client.put(ROOT, "f", b"content");
    let refused = EngineError::Refused { engine: "test".into(), reason: "no".into() };
    let open = || client.open(ino, libc::O_RDONLY);
    let (unlinked, opened) = held.open_during_unlink(Err(refused), || {}, open);
    assert_eq!(unlinked, Err(FsError::io("")));
    let fh = opened.unwrap().fh;
    assert_eq!(held.client.read(fh, 0, 100).unwrap(), b"content");
    // Open now, it outlives its name.
    held.client.unlink(ROOT, "f").unwrap();
    assert_eq!(held.client.read(fh, 0, 100).unwrap(), b"content");
    held.client.close(fh).unwrap();
    assert_eq!(held.client.open(ino, libc::O_RDONLY).map(drop), Err(FsError::NotFound));
}

#[test]
fn an_open_that_waits_for_an_unlink_can_be_interrupted() {
    let held = Held::new();
    let client = &held.client;
    let ino = client.put(ROOT, "f", b"content");
    let interrupt = Interrupt::default();
    let (signal, interrupted) = channel();
    let open = || {
        let opened = client.vfs.open(&client.caller, &interrupt, ino, libc::O_RDONLY);
        signal.send(()).unwrap();
        opened
    };
    // The commit goes on only after the open has been answered.
    let before = || {
        interrupt.set();
        interrupted.recv_timeout(LONG).unwrap();
    };
    let (unlinked, opened) = held.open_during_unlink(Ok(()), before, open);
    assert_eq!((unlinked, opened.map(drop)), (Ok(()), Err(FsError::Interrupted)));
}
