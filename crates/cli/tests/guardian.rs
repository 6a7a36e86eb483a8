//! A mount outlives the process that serves it, and another program can take that one's place.

mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use sluice_testkit::fuse::{no_fuse, no_rings};
use support::{TIMEOUT, Volume, ends_well, is_dead, kill, mounted, ok, server, sluice, until};

/// Mounts again where `point` is mounted.
fn again(volume: &Volume, point: &Path, options: &[&str]) -> std::process::Output {
    let mut command = sluice();
    command.arg("mount").args(volume.flags()).args(options).arg(&volume.meta).arg(point);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // One that is stacked on what is there would stay until somebody unmounts it.
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            kill_process(Pid::from_child(&child), Signal::TERM).expect("told to end");
            let said = said(&child.wait_with_output().expect("it ends"));
            panic!("it serves a mount of its own, instead of handing over: {said}");
        }
        thread::yield_now();
    }
    child.wait_with_output().expect("it has ended")
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Waits for the end of a guardian that must fail.
fn fails(mut child: Child) {
    let mut status = None;
    until("the guardian to end", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));
}

#[test]
fn a_successor_serves_what_is_open() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    let mut open = fs::File::create(point.join("open")).expect("made");
    open.write_all(b"hello").expect("written");
    open.sync_all().expect("stored");
    open.lock().expect("free");
    fs::remove_file(point.join("open")).expect("removed");
    let sid = volume.status()["Sessions"][0]["Sid"].clone();
    let first = server(&point);
    kill(first);
    // Nothing of this fails, and nothing of it goes into the folder below.
    fs::write(point.join("new"), "later").expect("written");
    let second = server(&point);
    assert_ne!(first, second);
    open.write_all(b" again").expect("the file without a name stays open");
    open.sync_all().expect("stored");
    let mut content = String::new();
    let mut reader = fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)))
        .expect("it has no name");
    reader.read_to_string(&mut content).expect("read");
    assert_eq!(content, "hello again");
    assert_eq!(volume.status()["Sessions"][0]["Sid"], sid, "it is the same client");
    assert!(volume.log().contains("signal 9"), "{}", volume.log());
    drop((open, reader));
    volume.umount(&point);
    ends_well(child);
    assert_eq!(fs::read_dir(&point).expect("the folder below").count(), 0);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn a_successor_knows_nothing_of_the_pages_of_open_files() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    let other = volume.mount("other", &[]);
    fs::write(point.join("f"), [1; 16_000]).expect("written");
    let open = fs::File::open(point.join("f")).expect("opened");
    let mut content = [0; 16_000];
    open.read_exact_at(&mut content, 0).expect("read");
    // Nobody tells the first server of it.
    fs::write(other.join("f"), [2; 16_000]).expect("written");
    kill(server(&point));
    until("the kernel to drop its pages", || {
        open.read_exact_at(&mut content, 0).expect("read");
        content == [2; 16_000]
    });
    fs::write(other.join("f"), [3; 16_000]).expect("written");
    assert_eq!(open.metadata().expect("attributes").len(), 16_000);
    until("the successor to see another state", || {
        open.metadata().expect("attributes");
        open.read_exact_at(&mut content, 0).expect("read");
        content == [3; 16_000]
    });
    assert!(fs::read(point.join("f")).expect("read") == [3; 16_000]);
    drop(open);
    volume.umount(&point);
    ends_well(child);
}

#[test]
fn another_program_takes_over_without_an_error() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    let mut held = fs::File::create(point.join("held")).expect("made");
    held.lock().expect("free");
    // Not stored when the first server is asked to go.
    held.write_all(&vec![7; 300_000]).expect("written");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = thread::spawn({
        let point = point.clone();
        move || {
            let mut number = 0;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let name = point.join(format!("file{number}"));
                fs::write(&name, number.to_string()).expect("written");
                assert_eq!(fs::read(&name).expect("read"), number.to_string().as_bytes());
                number += 1;
            }
            number
        }
    });
    for _ in 0..3 {
        let before = server(&point);
        let output = again(&volume, &point, &["--attr-cache", "2s"]);
        assert!(output.status.success(), "{}", said(&output));
        assert_ne!(server(&point), before);
    }
    drop(stop);
    let written = writer.join().expect("no error");
    assert!(written > 0);
    let other = fs::File::open(point.join("held")).expect("opened");
    assert!(other.try_lock().is_err(), "the lock is still held");
    drop((other, held));
    assert_eq!(fs::read(point.join("held")).expect("read"), vec![7; 300_000]);
    volume.umount(&point);
    ends_well(child);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn a_path_with_a_blank_is_the_place_of_one_mount() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("a b", &[]);
    let before = server(&point);
    let output = again(&volume, &point, &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert_ne!(server(&point), before, "it was upgraded, not stacked");
    volume.umount(&point);
    ends_well(child);
    assert!(!is_dead(&point) && fs::read_dir(&point).expect("the folder below").count() == 0);
}

#[test]
fn what_cannot_take_over_leaves_the_old_one_serving() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    let serves = server(&point);
    let mut other = Volume::new(&[]);
    for (volume, options, why) in [
        (&volume, &["--read-only"][..], "already, and -o cannot change"),
        (&volume, &["--subdir", "d"], "--subdir cannot change"),
        (&volume, &["--bucket", "/dev/null/none"], "/dev/null/none"),
        (&other, &[], "another volume is mounted there already"),
    ] {
        let output = again(volume, &point, options);
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
        assert_eq!(server(&point), serves);
    }
    other.meta.push_str(".none");
    assert!(said(&again(&other, &point, &[])).contains("no volume"));
    assert_eq!(server(&point), serves);
    volume.umount(&point);
    ends_well(child);
}

/// What was in a ring is lost with its process, so nobody can take over.
#[test]
fn a_mount_over_io_uring_starts_anew() {
    if no_fuse() || no_rings() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &["-o", "io_uring"]);
    fs::write(point.join("stays"), "here").expect("written");
    assert!(volume.log().contains("requests come through io_uring"), "{}", volume.log());
    let mut open = fs::File::create(point.join("open")).expect("made");
    open.write_all(b"hello").expect("written");
    open.sync_all().expect("stored");
    let first = server(&point);
    let output = again(&volume, &point, &["-o", "io_uring"]);
    assert!(!output.status.success() && said(&output).contains("io_uring"), "{}", said(&output));
    assert_eq!(server(&point), first);
    kill(first);
    until("the mount is there again", || {
        fs::read(point.join("stays")).is_ok_and(|content| content == b"here")
    });
    assert_ne!(server(&point), first);
    open.write_all(b" again").and_then(|()| open.sync_all()).expect_err("it was open in the dead mount");
    assert_eq!(fs::read(point.join("open")).expect("read"), b"hello");
    drop(open);
    volume.umount(&point);
    ends_well(child);
    assert_eq!(fs::read_dir(&point).expect("the folder below").count(), 0);
    ok(&["fsck", &volume.meta]);
}

/// The kernel refuses each of the calls in turn that rings need.
#[test]
fn a_mount_that_gets_no_rings_is_served_from_the_device() {
    if no_fuse() || no_rings() || no_strace() {
        return;
    }
    let switch = "/sys/module/fuse/parameters/enable_uring";
    for (fault, path, why) in [
        ("openat:error=ENOENT", Some(switch), "older than Linux 6.14"),
        ("io_uring_setup:error=EPERM", None, "cannot set up an io_uring"),
        ("io_uring_register:error=ENOMEM", None, "cannot set up an io_uring"),
    ] {
        let mut volume = Volume::new(&[]);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qqq", "-o"]).arg(volume.path("trace")).args(["-e", &format!("inject={fault}")]);
        strace.args(path.map(|path| ["-P", path]).iter().flatten()).arg(env!("CARGO_BIN_EXE_sluice"));
        let (point, child) = volume.serve_by(strace, "mnt", &["-o", "io_uring"]);
        fs::write(point.join("file"), "content").expect("written");
        assert_eq!(fs::read(point.join("file")).expect("read"), b"content");
        let log = volume.log();
        assert!(log.contains("not come through io_uring") && log.contains(why), "{fault}: {log}");
        volume.umount(&point);
        ends_well(child);
    }
}

/// Whether calls of a process cannot be made to fail, which is printed.
fn no_strace() -> bool {
    let works = Command::new("strace").args(["-qqq", "-o", "/dev/null", "true"]).status();
    let works = works.is_ok_and(|status| status.success());
    if !works {
        eprintln!("skipped: strace cannot trace a process here");
    }
    !works
}

#[test]
fn a_server_that_dies_again_and_again_is_given_up() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    for _ in 0..5 {
        kill(server(&point));
    }
    fails(child);
    until("the mount to be dead", || is_dead(&point));
    assert!(volume.log().contains("again and again"), "{}", volume.log());
    let point = volume.mount("mnt", &[]);
    volume.umount(&point);
}

#[test]
fn a_server_serves_on_without_its_guardian() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, mut child) = volume.serve("mnt", &[]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    fs::write(point.join("file"), "content").expect("it is served");
    until("the server to notice", || volume.log().contains("guardian has ended"));
    kill(server(&point));
    until("the mount to be dead", || is_dead(&point));
    let point = volume.mount("mnt", &[]);
    assert_eq!(fs::read(point.join("file")).expect("read"), b"content");
    volume.umount(&point);
}

/// A service manager may tell all processes of a unit at once.
#[test]
fn both_can_be_told_to_end_at_once() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    let mut open = fs::File::create(point.join("open")).expect("made");
    open.write_all(&vec![5; 100_000]).expect("written");
    for pid in [server(&point), Pid::from_child(&child)] {
        kill_process(pid, Signal::TERM).expect("sent");
    }
    ends_well(child);
    assert!(!mounted(&point), "{}", volume.log());
    assert!(!volume.log().contains("a second time"), "{}", volume.log());
    drop(open);
    let point = volume.mount("mnt", &[]);
    assert_eq!(fs::read(point.join("open")).expect("read"), vec![5; 100_000]);
    volume.umount(&point);
}
