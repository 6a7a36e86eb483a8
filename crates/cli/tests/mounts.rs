//! Mounts by the real program: they come, serve, flush and go.

mod support;

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use sluice_testkit::fuse::no_fuse;
use support::{Volume, ends_well, fails, is_dead, kill_both, mounted, ok, run, server, sluice, until};

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn what_is_written_is_there_after_the_next_mount() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--enable-xattr"]);
    fs::write(point.join("a"), "hello").expect("written");
    fs::create_dir_all(point.join("d/e")).expect("made");
    fs::write(point.join("d/e/big"), vec![7; 9 << 20]).expect("written");
    fs::set_permissions(point.join("a"), fs::Permissions::from_mode(0o640)).expect("changed");
    std::os::unix::fs::symlink("d/e", point.join("link")).expect("made");
    // While it is mounted there is one session, by its mount point; a mount of something else there
    // is refused.
    let status = volume.status();
    let sessions = status["Sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{status}");
    assert_eq!(sessions[0]["MountPoint"], point.display().to_string());
    let sid = sessions[0]["Sid"].to_string();
    assert!(ok(&["status", "--session", &sid, &volume.meta]).contains("MountPoint"));
    let again = fails(&["mount", "--subdir", "d", &volume.meta, &point.display().to_string()]);
    assert!(again.contains("already"), "{again}");
    volume.umount(&point);
    let status = volume.status();
    assert_eq!(status["Sessions"], serde_json::json!([]));
    // a, d, e, big, link: 4 KiB each but for 9 MiB.
    assert_eq!(status["Stat"]["UsedInodes"], 5);
    assert_eq!(status["Stat"]["UsedSpace"], 4 * 4096 + (9 << 20));

    let point = volume.mount("mnt", &["--read-only"]);
    assert_eq!(fs::read(point.join("a")).expect("read"), b"hello");
    assert_eq!(fs::read(point.join("link/big")).expect("read"), vec![7; 9 << 20]);
    assert_eq!(fs::metadata(point.join("a")).expect("seen").permissions().mode() & 0o777, 0o640);
    let refused = fs::write(point.join("b"), "x").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(30));
    assert_eq!(volume.status()["Sessions"], serde_json::json!([]), "a read-only mount has no session");
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn a_signal_flushes_and_unmounts() {
    if no_fuse() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT] {
        let mut volume = Volume::new(&[]);
        let (point, child) = volume.serve("mnt", &[]);
        // A hang-up of the terminal is nothing to it.
        kill_process(pid(&child), Signal::HUP).expect("sent");
        fs::write(point.join("a"), "hello").expect("written");
        // Still open and not flushed when the signal comes.
        let mut open = fs::File::create(point.join("open")).expect("made");
        std::io::Write::write_all(&mut open, &vec![5; 100_000]).expect("written");
        kill_process(pid(&child), signal).expect("sent");
        ends_well(child);
        assert!(!mounted(&point));
        drop(open);
        let point = volume.mount("again", &[]);
        assert_eq!(fs::read(point.join("a")).expect("read"), b"hello");
        assert_eq!(fs::read(point.join("open")).expect("read"), vec![5; 100_000]);
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
    }
}

#[test]
fn a_dead_mount_answers_until_it_is_replaced_or_unmounted() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    fs::write(point.join("a"), "hello").expect("written");
    kill_both(child, &point);
    until("the mount to be dead", || is_dead(&point));
    let error = fs::write(point.join("b"), "lost").expect_err("nobody serves it");
    assert_eq!(error.raw_os_error(), Some(support::ENOTCONN));
    let (point, child) = {
        let mounted = volume.mount("mnt", &[]);
        assert_eq!(fs::read(mounted.join("a")).expect("read"), b"hello");
        volume.umount(&mounted);
        volume.serve("mnt", &[])
    };
    kill_both(child, &point);
    until("the mount to be dead", || is_dead(&point));
    volume.umount(&point);
    assert_eq!(fs::read_dir(&point).expect("the folder below").count(), 0);
}

#[test]
fn the_background_tells_what_went_wrong() {
    if no_fuse() {
        return;
    }
    let volume = Volume::new(&[]);
    let [cache, dir, log, file] = volume.flags();
    let point = volume.path("file");
    fs::write(&point, "x").expect("written");
    let flags = [cache.as_str(), &dir, &log, &file];
    let said = fails(&[&["mount", "-d"], &flags[..], &[&volume.meta, &point.display().to_string()]].concat());
    assert!(said.contains("file"), "{said}");
    let point = volume.path("mnt").display().to_string();
    let wrong = volume.path("none.db");
    let said =
        fails(&[&["mount", "-d"], &flags[..], &[&format!("sqlite3://{}", wrong.display()), &point]].concat());
    assert!(said.contains("no volume"), "{said}");
    assert!(!mounted(Path::new(&point)));
}

#[test]
fn a_password_stays_out_of_the_process_title() {
    let volume = Volume::folder();
    // It waits for an engine that takes connections and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let url = format!("redis://:geheim@127.0.0.1:{port}/1");
    let mut child = sluice()
        .args(["mount", &url])
        .arg(volume.path("mnt"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    let title = || {
        let bytes = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    until("the title to be masked", || title().contains(":****@127.0.0.1"));
    let shown = title();
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(!shown.contains("geheim"), "{shown}");
}

#[test]
fn info_names_all_links_and_locks() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &[]);
    let linked = point.join("dir/linked");
    fs::create_dir(point.join("dir")).expect("made");
    fs::write(point.join("file"), "x").expect("written");
    for name in ["dir/linked", "dir/again"] {
        fs::hard_link(point.join("file"), point.join(name)).expect("linked");
    }
    let file = fs::File::options().write(true).open(&linked).expect("opened");
    file.lock().expect("a lock of flock(2)");
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("a lock of fcntl(2)");
    let said = ok(&["info", &linked.display().to_string()]);
    let line = |wanted: &str| said.lines().any(|line| line.trim() == wanted);
    assert!(line("/file") && line("/dir/linked") && line("/dir/again"), "{said}");
    let (flocks, plocks) = said.split_once("plocks").expect("both kinds");
    let flocks = flocks.split_once("flocks").expect("both kinds").1;
    let pid = std::process::id().to_string();
    assert!(flocks.contains("| W |") || flocks.contains(" W "), "{said}");
    assert!(plocks.contains(&pid), "{said}");
    drop(file);
    assert!(!ok(&["info", &linked.display().to_string()]).contains("locks"), "{said}");
    volume.umount(&point);
}

/// POSIX: a process that closes any descriptor of a file gives up all its record locks of it.
#[test]
fn record_locks_go_with_the_first_close_of_a_reader() {
    const SCRIPT: &str = "import fcntl, sys\n\
        first, second = open(sys.argv[1]), open(sys.argv[1])\n\
        fcntl.lockf(first, fcntl.LOCK_SH)\n\
        second.close()\n\
        print('closed', flush=True)\n\
        sys.stdin.read()\n";
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &[]);
    let path = point.join("file");
    fs::write(&path, "content").expect("written");
    let mut other = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut line = String::new();
    BufReader::new(other.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "closed\n");
    let file = fs::File::options().write(true).open(&path).expect("opened");
    let locked = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    drop(other.stdin.take());
    other.wait().expect("ended");
    locked.expect("nobody has a lock");
    drop(file);
    volume.umount(&point);
}

#[test]
fn a_command_whose_reader_goes_ends_quietly() {
    let volume = Volume::new(&[]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = sluice().args(["status", &volume.meta]).stdout(writer).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141), "as a shell reports SIGPIPE");
}

#[test]
fn a_helper_of_mount_says_nothing_on_success() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (helper, point) = (volume.path("mount.sluice"), volume.path("mnt"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), &helper).expect("linked");
    fs::create_dir(&point).expect("made");
    let options =
        format!("cache-dir={},log={}", volume.path("cache").display(), volume.path("log").display());
    let output = Command::new(&helper)
        .arg(&volume.meta)
        .arg(&point)
        .args(["-o", &format!("rw,{options}")])
        .output()
        .expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert_eq!(String::from_utf8_lossy(&said), "");
    volume.umount(&point);
}

#[test]
fn a_helper_of_mount_changes_a_mount() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (helper, point) = (volume.path("mount.sluice"), volume.path("mnt"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), &helper).expect("linked");
    fs::create_dir(&point).expect("made");
    let options =
        format!("cache-dir={},log={}", volume.path("cache").display(), volume.path("log").display());
    let meta = volume.meta.clone();
    let mount = |flags: &str| {
        let options = format!("{flags},{options}");
        let mut command = Command::new(&helper);
        let output = command.arg(&meta).arg(&point).args(["-o", &options]).output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let writable = || fs::write(point.join("file"), "data").map_err(|error| error.kind());
    assert!(mount("rw").0);
    // mount(8) names neither, since both are what it does without a word.
    let null = point.join("null");
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, &null, rustix::fs::FileType::CharacterDevice, 0o600.into(), device)
        .expect("made");
    fs::write(&null, "gone").expect("devices work");
    // As mount(8) passes on what it read of the mount.
    let all = "relatime,user_id=0,group_id=0,default_permissions,allow_other,remount";
    assert_eq!(mount(&format!("ro,{all}")), (true, String::new()));
    assert_eq!(writable(), Err(io::ErrorKind::ReadOnlyFilesystem));
    fs::write(&null, "gone").expect("a device is not of the file system");
    assert_eq!(mount(&format!("rw,{all}")), (true, String::new()));
    assert_eq!(writable(), Ok(()));
    volume.umount(&point);
    // What is not named stays: a program of another's may not become setuid by it.
    assert!(mount("rw,nosuid,nodev,noexec").0);
    assert_eq!(mount("ro,remount"), (true, String::new()));
    assert_eq!(mount("rw,remount"), (true, String::new()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let line = mounts.lines().find(|line| line.contains(&*point.to_string_lossy())).expect("mounted");
    let flags = line.split(' ').nth(5).expect("options");
    assert_eq!(flags, "rw,nosuid,nodev,noexec,relatime");
    volume.umount(&point);
    assert!(mount("ro").0);
    let (done, said) = mount(&format!("rw,{all}"));
    assert!(!done && said.contains("was mounted read-only"), "{said}");
    volume.umount(&point);
}

#[test]
fn nothing_is_mounted_where_the_kernel_makes_up_the_files() {
    let volume = Volume::new(&[]);
    for place in ["/proc/self/fd", "/sys/kernel", "/proc/not/there"] {
        let said = fails(&["mount", &volume.meta, place]);
        assert!(said.contains("the kernel makes up"), "{said}");
    }
}

/// Also of threads that began before it was mounted, such as those that upload.
#[test]
fn all_threads_of_a_server_have_its_priority() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, child) = volume.serve("mnt", &[]);
    fs::write(point.join("file"), "content").expect("written");
    // A thread may end while it is looked at.
    let nice = |task: &Path| -> Option<i32> {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{}/task", server(&point))).expect("threads");
    let threads: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.ok()?.path();
            Some((fs::read_to_string(task.join("comm")).ok()?, nice(&task)?))
        })
        .collect();
    assert!(threads.len() > 3, "{threads:?}");
    let own = threads[0].1;
    assert!(threads.iter().all(|(_, nice)| *nice == own) && own < 0, "{threads:?}");
    volume.umount(&point);
    ends_well(child);
}

#[test]
fn the_tools_work_inside_a_mount() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    let path = |name: &str| point.join(name).display().to_string();
    fs::create_dir_all(point.join("tree/sub")).expect("made");
    for number in 0..20 {
        fs::write(point.join(format!("tree/sub/{number}")), vec![number; 5000]).expect("written");
    }
    let said = ok(&["info", "-r", &path("tree")]);
    for line in ["inode: 2", "files: 20", "dirs: 2", "length: 97.66 KiB (100000 Bytes)", "path: /tree"] {
        assert!(said.contains(line), "`{line}` is not in {said}");
    }
    let said = ok(&["info", &path("tree/sub/7")]);
    assert!(said.contains("testvol/chunks/0/0/") && said.contains("_0_5000"), "{said}");
    assert!(ok(&["info", "--raw", &path("tree/sub/7")]).contains("sliceId"));
    let csv = sluice()
        .args(["summary", "--csv", "--strict", "-d", "1", "-e", "5"])
        .arg(point.join("tree"))
        .output();
    let csv = String::from_utf8(csv.expect("starts").stdout).expect("text");
    assert_eq!(
        csv.lines().collect::<Vec<_>>(),
        ["PATH,SIZE,DIRS,FILES", "/,172032,2,20", "sub/,167936,1,20"]
    );
    assert!(ok(&["summary", &path("")]).contains("tree/"));

    ok(&["clone", "-p", &path("tree"), &path("copy")]);
    assert_eq!(fs::read(point.join("copy/sub/9")).expect("read"), vec![9; 5000]);
    assert!(fails(&["clone", &path("tree"), &path("copy")]).contains("exists"));
    assert!(fails(&["clone", &path("tree"), &path("tree/sub/in")]).contains("lies in"));
    let outside = volume.path("outside").display().to_string();
    assert!(fails(&["clone", &path("tree"), &outside]).contains("not in one mount"));

    let said = ok(&["rmr", &path("tree")]);
    assert!(said.contains("removed 22 entries"), "{said}");
    // The kernel may believe a name for as long as --entry-cache says.
    until("the name to go", || !point.join("tree").exists());
    assert!(fails(&["rmr", &path("tree")]).contains("tree"));
    assert_eq!(fs::read(point.join("copy/sub/9")).expect("read"), vec![9; 5000], "the clone keeps its data");
    let said = ok(&["bench", "--big-file-size", "8M", "--small-file-count", "10", "-p", "2", &path("")]);
    assert!(said.contains("Write big file") && said.contains("Stat file"), "{said}");
    assert_eq!(
        fs::read_dir(&point)
            .expect("listed")
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains("benchmark"))
            })
            .count(),
        0
    );
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn a_part_of_a_volume_and_other_names() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let part = volume.mount("part", &["--subdir", "a/b"]);
    fs::set_permissions(&part, fs::Permissions::from_mode(0o777)).expect("changed");
    volume.umount(&part);
    let part = volume.mount("part", &["--subdir", "a/b", "--prefix-internal", "--all-squash", "12:34"]);
    fs::write(part.join("file"), "x").expect("written");
    assert!(part.join(".jfs.stats").exists() && !part.join(".stats").exists());
    let whole = volume.mount("whole", &["--hide-internal", "-o", "noexec"]);
    let found = fs::metadata(whole.join("a/b/file")).expect("seen");
    assert_eq!((found.uid(), found.gid()), (12, 34));
    let listed = fs::read_dir(&whole).expect("listed");
    let names: Vec<_> = listed.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(whole.join(".stats").exists());
    assert!(ok(&["summary", &part.display().to_string()]).contains("file"));
    volume.umount(&part);
    volume.umount(&whole);
}

#[test]
fn staged_blocks_are_waited_for() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--writeback"]);
    fs::write(point.join("a"), vec![3; 6 << 20]).expect("written");
    ok(&["umount", "--flush", &point.display().to_string()]);
    let (clean, said) = run(&["fsck", &volume.meta]);
    assert!(clean, "{said}");
}

#[test]
fn a_mount_ends_when_its_volume_is_gone() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (point, mut child) = volume.serve("mnt", &["--heartbeat", "1s"]);
    let database = rusqlite::Connection::open(volume.path("meta.db")).expect("opens");
    database.execute("DELETE FROM jfs_setting", []).expect("runs");
    let mut status = None;
    until("the mount to end", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(11), "{}", volume.log());
    until("the mount to be dead", || is_dead(&point));
    volume.umount(&point);
    assert!(volume.log().contains("destroyed"), "{}", volume.log());
}

#[test]
fn umount_leaves_alone_what_is_no_volume() {
    if no_fuse() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(place.path()).status();
    assert!(mount.expect("mount").success());
    for options in [&[][..], &["--force"]] {
        let output = sluice().arg("umount").args(options).arg(place.path()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("tmpfs"), "{said}");
    }
    let umount = Command::new("umount").arg(place.path()).status();
    assert!(umount.expect("umount").success(), "it was still there");
}
