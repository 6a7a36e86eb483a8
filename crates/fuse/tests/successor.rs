//! A session that takes up the mount of a server that was killed.

mod memfs;
mod rig;

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use rig::{is_mounted, join, no_fuse, start_part, until};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sluice_fuse::{
    Attr, AttrReply, Config, Connection, Entry, Errno, FileSystem, MountOptions, Open, OpenFlags, Opened,
    ROOT, Read, ReadBuffer, Request, Result, Session,
};

const FILE: u64 = 2;
const OTHER: u64 = 3;
const TTL: Duration = Duration::from_hours(1);

/// Two files, `f` and `g`. Nobody who reads it gets an answer until `answers` is set.
#[derive(Default)]
struct OneFile {
    answers: AtomicBool,
    /// Where a file tells the test that a read has come.
    asked: Option<PathBuf>,
    lookups: AtomicU64,
    getattrs: AtomicU64,
    opens: AtomicU64,
    resent: AtomicU64,
    forgotten: AtomicU64,
}

fn attr(ino: u64) -> Attr {
    let mode = if ino == ROOT { libc::S_IFDIR | 0o777 } else { libc::S_IFREG | 0o666 };
    Attr { ino, mode, nlink: 1, size: 4, ..Attr::default() }
}

impl FileSystem for OneFile {
    fn lookup(&self, _: &Request<'_>, _: u64, name: &OsStr) -> Result<Entry> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let ino = match name.to_str() {
            Some("f") => FILE,
            Some("g") => OTHER,
            _ => return Err(Errno::ENOENT),
        };
        Ok(Entry { ino, generation: 0, attr: attr(ino), entry_ttl: TTL, attr_ttl: TTL })
    }

    fn getattr(&self, _: &Request<'_>, ino: u64, _: Option<u64>) -> Result<AttrReply> {
        self.getattrs.fetch_add(u64::from(ino == OTHER), Ordering::Relaxed);
        Ok(AttrReply { attr: attr(ino), ttl: TTL })
    }

    fn open(&self, _: &Request<'_>, ino: u64, _: &Open) -> Result<Opened> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(Opened { fh: ino, flags: OpenFlags::DIRECT_IO })
    }

    fn read(&self, req: &Request<'_>, _: u64, _: &Read, out: &mut ReadBuffer) -> Result<()> {
        if let Some(path) = &self.asked {
            fs::write(path, "").expect("write");
        }
        while !self.answers.load(Ordering::Relaxed) {
            thread::park();
        }
        self.resent.fetch_add(u64::from(req.resent()), Ordering::Relaxed);
        out.push(Bytes::from_static(b"data"));
        Ok(())
    }

    fn forget(&self, ino: u64, count: u64) {
        self.forgotten.fetch_add(if ino == FILE { count } else { 0 }, Ordering::Relaxed);
    }
}

/// A server that can be killed, and where it mounts.
struct Server(Child, PathBuf);

impl Server {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = sluice_fuse::clear_dead(&self.1);
    }
}

/// Copies of what a process has of the kernel's device.
fn descriptors(server: &Child) -> Vec<OwnedFd> {
    let pid = Pid::from_child(server);
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("pidfd");
    let all = fs::read_dir(format!("/proc/{}/fd", server.id())).expect("descriptors");
    let devices = all
        .map(|entry| entry.expect("descriptor").path())
        .filter(|path| fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/fuse")));
    let numbers = devices.map(|path| {
        path.file_name().and_then(OsStr::to_str).and_then(|name| name.parse().ok()).expect("number")
    });
    numbers.map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("copy")).collect()
}

#[test]
fn a_successor_answers_what_was_under_way() {
    if no_fuse() {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let at = dir.path().join("mnt");
    fs::create_dir(&at).expect("mkdir");
    let program = env::current_exe().expect("program");
    let server = start_part(&program, "server", &at).stdout(Stdio::null()).spawn().expect("server");
    let mut server = Server(server, at.clone());
    let reported = at.with_extension("json");
    until("the server tells", || reported.exists());
    let connection: Connection =
        serde_json::from_slice(&fs::read(&reported).expect("read")).expect("a connection");
    let file = Arc::new(File::open(at.join("f")).expect("open"));
    fs::metadata(at.join("g")).expect("stat");
    let reader = thread::spawn({
        let file = Arc::clone(&file);
        move || {
            let mut buffer = [0; 4];
            file.read_at(&mut buffer, 0).map(|read| buffer[..read].to_vec())
        }
    });
    until("the read is under way", || at.with_extension("asked").exists());
    let held = descriptors(&server.0);
    server.kill();

    let fs = Arc::new(OneFile { answers: true.into(), ..OneFile::default() });
    let served = Arc::clone(&fs) as Arc<dyn FileSystem>;
    let session = Session::resume(served, &connection, held, Config::default()).expect("resume");
    let handle = session.handle();
    let can_resend = connection.can_resend();
    if !can_resend {
        // Older than Linux 6.9: nobody asks again, and the reader waits for the end.
        handle.abort().expect("abort");
    }
    let running = thread::spawn(move || session.run());
    let read = join("the reader ends", reader);
    if can_resend {
        assert_eq!(read.expect("no error"), b"data");
        assert_eq!(fs.resent.load(Ordering::Relaxed), 1, "it was told that it is asked again");
        assert_eq!(file.read_at(&mut [0; 4], 0).expect("the file stays open"), 4);
        assert_eq!(fs.resent.load(Ordering::Relaxed), 1, "what is new is not");
        // Of the other file, since reading makes the kernel ask for the access time.
        fs::metadata(at.join("g")).expect("stat");
        let asked = [&fs.lookups, &fs.getattrs, &fs.opens].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(asked, [0, 0, 0], "the kernel believes what the first server said");
        drop(file);
        handle.notifier().inval_entry(ROOT, OsStr::new("f")).expect("inval");
        until("the first server's lookup is forgotten", || fs.forgotten.load(Ordering::Relaxed) == 1);
        handle.unmount().expect("unmount");
    }
    join("the session ends", running).expect("session");
    drop(server);
    assert!(!is_mounted(&at));
}

/// What this program does when a test starts it once more.
#[test]
#[ignore = "a part that other tests start"]
fn part() {
    let at = PathBuf::from(env::var_os("PART_PATH").expect("PART_PATH"));
    let fs = OneFile { asked: Some(at.with_extension("asked")), ..OneFile::default() };
    let options = MountOptions::new("memory", "memfs");
    let session = Session::mount(Arc::new(fs), &at, &options, Config::default()).expect("mount");
    let (reported, part) = (at.with_extension("json"), at.with_extension("part"));
    fs::write(&part, serde_json::to_vec(&session.connection()).expect("JSON")).expect("write");
    fs::rename(part, reported).expect("rename");
    session.run().expect("session");
}
