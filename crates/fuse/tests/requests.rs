//! What reaches the file system, through real mounts: requests and their number, locks,
//! notifications.

mod memfs;
mod rig;

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    process::Command,
    time::Duration,
};

use memfs::{Behaviour, MemFs, Op};
use rig::{Mounted, no_fuse, reap, until};
use rustix::fs::{FlockOperation, IFlags, XattrFlags};
use sluice_fuse::{Config, Features, OpenFlags, ROOT};

over_both!(
    everyday_work,
    directories_larger_than_a_page_list_whole,
    extended_requests,
    request_counts,
    changes_cost_one_getattr_of_the_parent,
    what_is_cached_stays_closed_to_others,
    killpriv_saves_a_getxattr_per_write,
    flock_and_fcntl_locks_are_told_apart,
    waiting_for_a_lock_holds_no_thread_and_ends,
    notifications_reach_the_kernel,
);

/// How often something is done that is counted.
const N: u64 = 10;

fn quick() -> Config {
    Config { features: Features::DEFAULT.with(Features::HANDLE_KILLPRIV_V2), ..Config::default() }
}

/// How often `op` was asked while `work` ran.
fn count(fs: &MemFs, op: Op, work: impl FnOnce()) -> u64 {
    let before = fs.counts.of(op);
    work();
    fs.counts.of(op) - before
}

fn everyday_work() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    fs::create_dir(m.path("d")).expect("mkdir");
    let data: Vec<u8> = (0..3_500_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    fs::write(m.path("d/big"), &data).expect("write");
    assert_eq!(m.fs.counts.of(Op::Write), 4, "1 MiB each");
    m.handle
        .notifier()
        .inval_inode(fs::metadata(m.path("d/big")).expect("stat").ino(), 0, 0)
        .expect("notify");
    assert!(fs::read(m.path("d/big")).expect("read") == data);
    fs::rename(m.path("d/big"), m.path("moved")).expect("rename");
    fs::hard_link(m.path("moved"), m.path("d/link")).expect("link");
    assert_eq!(fs::metadata(m.path("d/link")).expect("stat").nlink(), 2);
    symlink("moved", m.path("sym")).expect("symlink");
    assert_eq!(fs::metadata(m.path("sym")).expect("stat").len(), 3_500_000);
    let file = File::options().write(true).open(m.path("moved")).expect("open");
    file.set_len(10).expect("truncate");
    assert_eq!(fs::read(m.path("sym")).expect("read"), data[..10]);
    assert_eq!(fs::remove_dir(m.path("d")).expect_err("full").raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_file(m.path("d/link")).expect("unlink");
    fs::remove_dir(m.path("d")).expect("rmdir");
    assert_eq!(fs::read_dir(m.path("")).expect("list").count(), 2);
}

fn directories_larger_than_a_page_list_whole() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    for i in 0..3000 {
        File::create(m.path(&format!("a file with a longer name {i}"))).expect("create");
    }
    let mut names: Vec<_> =
        fs::read_dir(m.path("")).expect("list").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3000);
    assert!(m.fs.counts.of(Op::Readdirplus) > 0);
}

fn extended_requests() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    let path = m.path("f");
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("create");
    rustix::fs::setxattr(&path, "user.a", b"value", XattrFlags::CREATE).expect("setxattr");
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]).expect("getxattr"), 5);
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut [0_u8; 2][..]), Err(rustix::io::Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut value[..]).expect("listxattr"), 7);
    rustix::fs::removexattr(&path, "user.a").expect("removexattr");
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Err(rustix::io::Errno::NODATA));

    rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).expect("FS_IOC_SETFLAGS");
    assert_eq!(rustix::fs::ioctl_getflags(&file).expect("FS_IOC_GETFLAGS"), IFlags::NODUMP);

    file.write_all(b"content").expect("write");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).expect("SEEK_HOLE"), 7);
    let copy = File::options().read(true).write(true).create_new(true).open(m.path("copy")).expect("create");
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 3), &copy, Some(&mut 0), 100).expect("copy");
    assert_eq!((copied, fs::read(m.path("copy")).expect("read")), (4, b"tent".to_vec()));
    // What the file system lacks must not look like a fault.
    file.sync_all().expect("fsync");
    file.seek(SeekFrom::Start(0)).expect("seek");
    assert_eq!(
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 10),
        Err(rustix::io::Errno::OPNOTSUPP)
    );
    let tmpfile = rustix::fs::open(
        m.path(""),
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::RUSR,
    );
    assert_eq!(tmpfile.map(|_| ()), Err(rustix::io::Errno::OPNOTSUPP));
    rustix::fs::syncfs(&file).expect("syncfs");
    rustix::fs::statx(&file, "", rustix::fs::AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::BASIC_STATS)
        .expect("statx");
}

fn request_counts() {
    if no_fuse() {
        return;
    }
    let zero = Behaviour { attr_ttl: Duration::ZERO, ..Behaviour::default() };
    let m = Mounted::new(zero, quick());
    let path = m.path("f");
    fs::write(&path, b"x").expect("write");
    let fs = &*m.fs;
    let times = |work: &dyn Fn()| (0..N).for_each(|_| work());
    let stat = || assert!(path.exists());
    stat();
    assert_eq!(count(fs, Op::Getattr, || times(&stat)), N, "stat: one GETATTR");
    assert_eq!(count(fs, Op::Lookup, || times(&stat)), 0, "stat: no LOOKUP while the name holds");
    let open = || drop(File::open(&path).expect("open"));
    assert_eq!(count(fs, Op::Open, || times(&open)), N);
    assert_eq!(count(fs, Op::Flush, || times(&open)), N, "open and close: OPEN, FLUSH");
    let released = fs.counts.of(Op::Release);
    until("every open file is released", || fs.counts.of(Op::Release) >= released.max(2 * N));

    let noflush = Behaviour { open: OpenFlags::KEEP_CACHE | OpenFlags::NOFLUSH, ..Behaviour::default() };
    let m = Mounted::new(noflush, quick());
    let path = m.path("f");
    std::fs::write(&path, b"x").expect("write");
    let fs = &*m.fs;
    let open = || drop(File::open(&path).expect("open"));
    assert_eq!(count(fs, Op::Flush, || times(&open)), 0, "NOFLUSH: no FLUSH");
    assert_eq!(count(fs, Op::Getattr, || times(&open)), 0);
}

fn changes_cost_one_getattr_of_the_parent() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    let fs = &*m.fs;
    let make = || (0..N).for_each(|i| drop(File::create(m.path(&format!("f{i}"))).expect("create")));
    let before = [Op::Lookup, Op::Create, Op::Flush, Op::Getattr].map(|op| fs.counts.of(op));
    make();
    let after = [Op::Lookup, Op::Create, Op::Flush, Op::Getattr].map(|op| fs.counts.of(op));
    assert_eq!([0, 1, 2].map(|i| after[i] - before[i]), [N; 3], "create: LOOKUP, CREATE, FLUSH");
    assert!((N - 1..=N).contains(&(after[3] - before[3])), "and a GETATTR of the parent");

    let remove = || (0..N).for_each(|i| std::fs::remove_file(m.path(&format!("f{i}"))).expect("unlink"));
    let getattrs = fs.counts.of(Op::Getattr);
    assert_eq!(count(fs, Op::Unlink, remove), N);
    assert!((N - 1..=N).contains(&(fs.counts.of(Op::Getattr) - getattrs)));
    until("removed inodes are forgotten", || fs.counts.of(Op::Forget) >= N);
}

fn what_is_cached_stays_closed_to_others() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    fs::create_dir(m.path("private")).expect("mkdir");
    fs::write(m.path("private/f"), b"secret").expect("write");
    let as_nobody =
        || Command::new("cat").arg(m.path("private/f")).uid(65534).gid(65534).output().expect("cat");
    assert!(as_nobody().status.success(), "0755: open to all");
    fs::set_permissions(m.path("private"), fs::Permissions::from_mode(0o700)).expect("chmod");
    assert_eq!(fs::read(m.path("private/f")).expect("read"), b"secret");
    let refused = as_nobody();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
}

fn killpriv_saves_a_getxattr_per_write() {
    if no_fuse() {
        return;
    }
    let writes = |config| {
        let m = Mounted::new(Behaviour::default(), config);
        let file = File::create(m.path("f")).expect("create");
        count(&m.fs, Op::Getxattr, || (0..10).for_each(|i| file.write_all_at(b"data", i * 4).expect("write")))
    };
    assert!(writes(quick()) <= 1, "once per inode at most");
    assert_eq!(writes(Config::default()), 10, "what it costs without it");
}

fn flock_and_fcntl_locks_are_told_apart() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    let (one, two) = (File::create(m.path("f")).expect("create"), File::create(m.path("f")).expect("open"));
    let counts = |fs: &MemFs| (fs.counts.of(Op::Flock), fs.counts.of(Op::Posix));
    rustix::fs::flock(&one, FlockOperation::LockExclusive).expect("flock");
    assert_eq!(counts(&m.fs), (1, 0));
    let refused = rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::AGAIN));
    rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive)
        .expect("the other kind does not mind");
    assert_eq!(counts(&m.fs), (2, 1));
    drop(one);
    until("closing releases the flock", || {
        rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

fn waiting_for_a_lock_holds_no_thread_and_ends() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), Config { max_readers: 2, ..quick() });
    let path = m.path("f");
    let mine = File::create(&path).expect("create");
    rustix::fs::flock(&mine, FlockOperation::LockExclusive).expect("flock");
    let waiting = || Command::new("flock").arg(&path).args(["--command", "true"]).spawn().expect("flock(1)");
    let mut waiters: Vec<_> = (0..8).map(|_| waiting()).collect();
    until("all wait", || m.fs.counts.of(Op::Flock) == 9);

    // By a signal that kills …
    waiters[0].kill().expect("kill");
    assert!(!reap("a killed waiter ends", &mut waiters[0]).success());
    until("and its wait too", || m.fs.counts.of(Op::Interrupted) == 1);
    // … by one that is handled: SIGALRM, after a while …
    let mut limited = Command::new("flock");
    limited.args(["--timeout", "0.05"]).arg(&path).args(["--command", "true"]);
    let mut limited = limited.spawn().expect("flock(1)");
    assert_eq!(reap("the alarm ends the wait", &mut limited).code(), Some(1));
    assert_eq!(m.fs.counts.of(Op::Interrupted), 2);
    // … or by the lock.
    drop(mine);
    for waiter in &mut waiters[1..] {
        assert!(reap("the lock is granted", waiter).success());
    }
}

fn notifications_reach_the_kernel() {
    if no_fuse() {
        return;
    }
    let m = Mounted::new(Behaviour::default(), quick());
    let (path, notifier) = (m.path("f"), m.handle.notifier());
    fs::write(&path, b"one").expect("write");
    let ino = fs::metadata(&path).expect("stat").ino();
    // Without a stat, which would ask the file system.
    let read = || {
        let mut bytes = [0; 64];
        let n = File::open(&path).expect("open").read(&mut bytes).expect("read");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };
    assert_eq!(read(), "one");
    m.fs.set_data(ino, b"two, longer");
    assert_eq!(read(), "one", "the kernel cannot know yet");
    assert!(notifier.inval_inode(ino, 0, 0).expect("inval_inode"), "the kernel knows it");
    assert_eq!(read(), "two, longer");

    notifier.store(ino, 0, b"six").expect("store");
    assert_eq!(count(&m.fs, Op::Read, || assert_eq!(read(), "six, longer")), 0);

    fs::write(m.path("g"), b"").expect("write");
    let gone = fs::metadata(m.path("g")).expect("stat").ino();
    for (name, ino) in [("f", ino), ("g", gone)] {
        m.fs.drop_name(ROOT, name);
        assert!(m.path(name).exists(), "the kernel cannot know yet");
        if name == "f" {
            notifier.inval_entry(ROOT, name.as_ref()).expect("inval_entry");
        } else {
            notifier.delete(ROOT, ino, name.as_ref()).expect("delete");
        }
        assert!(!m.path(name).exists());
    }
    assert!(!notifier.inval_inode(99_999, 0, 0).expect("what the kernel does not know is no error"));
    assert!(!notifier.expire_entry(ROOT, "never seen".as_ref()).expect("nor here"));
}
