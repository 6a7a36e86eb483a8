//! A volume in memory, mounted: what the kernel and the adapter make of it together.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod mounted;

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::{
        fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use mounted::{Mounted, Volume};
use sluice_fuse::{Config, MountOptions, Session};
use sluice_testkit::fuse::no_fuse;
use sluice_types::{Caller, Ino};
use sluice_vfs::{Interrupt, RenameMode, VfsConfig};

#[test]
fn programs_find_a_file_system() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    let file = root.join("d/f");
    fs::write(&file, b"0123456789").unwrap();
    fs::hard_link(&file, root.join("link")).unwrap();
    symlink("d/f", root.join("soft")).unwrap();
    fs::rename(root.join("d"), root.join("e")).unwrap();
    assert!(fs::read(root.join("soft")).is_err(), "it points nowhere now");
    assert_eq!(fs::read(root.join("link")).unwrap(), b"0123456789");
    let mut open = fs::OpenOptions::new().read(true).write(true).open(root.join("e/f")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 2);
    open.set_len(4).unwrap();
    open.seek(SeekFrom::Start(6)).unwrap();
    open.write_all(b"xy").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 8);
    assert_eq!(fs::read(root.join("link")).unwrap(), b"0123\0\0xy");
    fs::remove_file(root.join("link")).unwrap();
    fs::remove_file(root.join("e/f")).unwrap();
    let mut rest = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "0123\0\0xy");
    drop(open);
    fs::remove_dir(root.join("e")).unwrap();
    let mut left: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".accesslog", ".config", ".stats", "soft"]);
}

#[test]
fn a_private_directory_stays_private_once_its_names_are_cached() {
    let forever = Duration::from_hours(1);
    let config =
        VfsConfig { attr_ttl: forever, entry_ttl: forever, dir_entry_ttl: forever, ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(config) else { return };
    let root = mounted.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = root.join("private/secret");
    fs::create_dir(root.join("private")).unwrap();
    fs::write(&secret, b"secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    fs::set_permissions(mounted.path().parent().unwrap(), fs::metadata("/tmp").unwrap().permissions())
        .unwrap();
    for tool in ["cat", "stat"] {
        let output = Command::new(tool).arg(&secret).uid(65534).gid(65534).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && reported.contains("Permission denied"), "{tool}: {reported}");
    }
}

#[test]
fn who_belongs_to_the_group_by_a_further_group_keeps_setgid() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let root = mounted.path();
    std::os::unix::fs::chown(root, None, Some(2000)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o2777)).unwrap();
    let make = r"use Fcntl; umask 0; sysopen(F, $ARGV[0], O_CREAT | O_WRONLY, 02755) or die $!";
    for (name, groups, mode) in [("member", "2000", 0o2755), ("other", "3000", 0o755)] {
        let file = root.join(name);
        let user = ["--reuid=65534", "--regid=65534", &format!("--groups={groups}")];
        let made = Command::new("setpriv").args(user).args(["perl", "-e", make]).arg(&file).status().unwrap();
        assert!(made.success());
        let made = fs::metadata(&file).unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid()), (mode, 2000), "{name}");
    }
}

#[test]
fn an_open_finds_what_took_the_place_of_a_file_also_when_that_lies_in_the_trash() {
    let forever = Duration::from_hours(1);
    let config = VfsConfig { attr_ttl: forever, entry_ttl: forever, ..VfsConfig::default() };
    let Some(mounted) = Mounted::with_trash(config, 1) else { return };
    let root = mounted.path();
    let replace = |name: &str| {
        fs::write(root.join(name), "old").unwrap();
        let new = format!("new {name}");
        fs::write(root.join(&new), "new").unwrap();
        assert_eq!(fs::metadata(root.join(name)).unwrap().len(), 3);
        let (vfs, me, never) = (&mounted.vfs, Caller::user(0, 0), Interrupt::never());
        let (from, to) = ((Ino::ROOT, new.as_bytes()), (Ino::ROOT, name.as_bytes()));
        vfs.rename(&me, &never, from, to, RenameMode::Replace).unwrap();
    };
    replace("read");
    assert_eq!(fs::read(root.join("read")).unwrap(), b"new");
    replace("write");
    let mut file = fs::OpenOptions::new().write(true).open(root.join("write")).unwrap();
    file.write_all(b"two").unwrap();
    drop(file);
    assert_eq!(fs::read(root.join("write")).unwrap(), b"two");
    replace("cut");
    fs::write(root.join("cut"), b"three").unwrap();
    assert_eq!(fs::read(root.join("cut")).unwrap(), b"three");

    let list = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let old: Vec<_> = list(&root.join(".trash")).iter().flat_map(|hour| list(hour)).collect();
    assert_eq!(old.len(), 3);
    for old in old {
        let kept = by_handle(&old, libc::O_RDONLY).map(std::io::read_to_string);
        assert_eq!(kept.unwrap().unwrap(), "old", "no path is looked up again");
        assert_eq!(fs::read(&old).unwrap(), b"old");
        let denied = fs::OpenOptions::new().write(true).open(&old).unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::EPERM));
    }
}

#[test]
fn a_program_loses_its_capabilities_with_its_content() {
    let Some(mounted) = Mounted::new(VfsConfig { capabilities: true, ..VfsConfig::default() }) else {
        return;
    };
    let path = mounted.path().join("program");
    fs::write(&path, b"content").unwrap();
    // Version 2, effective: cap_setuid and cap_setgid.
    let mut capabilities = [0; 20];
    capabilities[..5].copy_from_slice(&[1, 0, 0, 2, 0xc0]);
    let name = "security.capability";
    let set = || rustix::fs::setxattr(&path, name, &capabilities, rustix::fs::XattrFlags::empty()).unwrap();
    let is_left = || match rustix::fs::getxattr(&path, name, &mut [0_u8; 64][..]) {
        Ok(length) => length == capabilities.len(),
        Err(why) => {
            assert_eq!(why, rustix::io::Errno::NODATA);
            false
        }
    };
    let open = |options: &mut fs::OpenOptions| options.open(&path).unwrap();
    set();
    open(fs::OpenOptions::new().read(true)).read_to_end(&mut Vec::new()).unwrap();
    assert!(is_left());
    open(fs::OpenOptions::new().write(true)).write_all(b"other").unwrap();
    assert!(!is_left(), "written");
    set();
    fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let mut user = Command::new("sh");
    assert!(
        user.arg("-c").arg(r#"echo x >>"$0""#).arg(&path).uid(1000).gid(1000).status().unwrap().success()
    );
    assert!(!is_left(), "written by another user");
    set();
    open(fs::OpenOptions::new().write(true)).set_len(3).unwrap();
    assert!(!is_left(), "cut");
    set();
    open(fs::OpenOptions::new().write(true).truncate(true));
    assert!(!is_left(), "emptied");
    set();
    std::os::unix::fs::chown(&path, Some(7), None).unwrap();
    assert!(!is_left(), "given away");
    set();
    let allocated = open(fs::OpenOptions::new().write(true));
    rustix::fs::fallocate(&allocated, rustix::fs::FallocateFlags::empty(), 0, 8192).unwrap();
    assert!(!is_left(), "allocated");
    set();
    let direct = open(fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT));
    rustix::io::pwrite(&direct, &Page([7; 4096]).0, 0).unwrap();
    assert!(!is_left(), "written past the pages");
}

/// Memory that a direct write takes.
#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn times_before_1970_are_what_they_were_set_to() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    let path = mounted.path().join("f");
    let file = fs::File::create(&path).unwrap();
    let old = rustix::fs::Timespec { tv_sec: -315_619_201, tv_nsec: 999_999_999 };
    rustix::fs::futimens(&file, &rustix::fs::Timestamps { last_access: old, last_modification: old })
        .unwrap();
    let seen = mounted.vfs.getattr(&Interrupt::never(), Ino(file.metadata().unwrap().ino())).unwrap().0;
    assert_eq!((seen.mtime.sec, seen.mtime.nsec), (old.tv_sec, old.tv_nsec as u32));
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (old.tv_sec, old.tv_nsec));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (old.tv_sec, old.tv_nsec));
}

#[test]
fn reading_sets_the_access_time_where_it_is_kept() {
    let config = VfsConfig { atime: sluice_vfs::AtimeMode::Relative, ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(config) else { return };
    let path = mounted.path().join("f");
    fs::write(&path, b"content").unwrap();
    let accessed = || {
        let meta = fs::metadata(&path).unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    // The kernel has the content, and must ask for it all the same.
    let written = accessed();
    fs::read(&path).unwrap();
    let first = accessed();
    assert!(first > written, "{first:?}");
    let [reads] = mounted.asked(["read"], || drop(fs::read(&path).unwrap()));
    assert_eq!((reads, accessed()), (0, first), "it has been read since it was written");
}

#[test]
fn what_the_kernel_has_read_is_asked_for_again_once_its_access_time_is_due() {
    let config = VfsConfig { atime: sluice_vfs::AtimeMode::Strict, ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(config) else { return };
    let path = mounted.path().join("f");
    fs::write(&path, b"content").unwrap();
    let read = || {
        fs::read(&path).unwrap();
        fs::metadata(&path).unwrap().atime()
    };
    // Nothing but the clock goes on: in the next second it is due, whatever pages the kernel has.
    let (first, deadline) = (read(), Instant::now() + Duration::from_secs(20));
    while read() <= first {
        assert!(Instant::now() < deadline, "the kernel answers from its pages and tells nobody");
        thread::yield_now();
    }
}

#[test]
fn setuid_goes_at_once_with_the_content_and_with_the_owner() {
    // The kernel believes what it knows for longer than this takes.
    let config = VfsConfig { attr_ttl: Duration::from_hours(1), ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(config) else { return };
    fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = mounted.path().join("program");
    fs::write(&path, b"content").unwrap();
    // Nothing but the mode is asked for.
    let mode = || {
        let mask = rustix::fs::StatxFlags::MODE;
        let seen = rustix::fs::statx(rustix::fs::CWD, &path, rustix::fs::AtFlags::empty(), mask).unwrap();
        seen.stx_mode & 0o7777
    };
    let set = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    set();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b" more").unwrap();
    assert_eq!(mode(), 0o6777, "the superuser may keep them");
    for command in [r#"echo other >"$0""#, r#"echo more >>"$0""#, r#"fallocate -l 8192 "$0""#] {
        set();
        let mut user = Command::new("sh");
        assert!(user.arg("-c").arg(command).arg(&path).uid(1000).gid(1000).status().unwrap().success());
        assert_eq!(mode(), 0o777, "{command}");
    }
    // Without execution by the group, setgid is for those who do not belong to it.
    for (group, left) in [(1000, 0), (0, 0o2000)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6767)).unwrap();
        let mut user = Command::new("fallocate");
        assert!(user.args(["-l", "9000"]).arg(&path).uid(1000).gid(group).status().unwrap().success());
        assert_eq!(mode(), 0o767 | left, "of group {group}");
    }
    set();
    std::os::unix::fs::chown(&path, Some(7), None).unwrap();
    assert_eq!(mode(), 0o777, "it is another user's program now");
    // As on other file systems, of all but directories.
    for (name, kept) in [("socket", 0o755), ("dir", 0o6755)] {
        let path = mounted.path().join(name);
        match name {
            "dir" => fs::create_dir(&path).unwrap(),
            _ => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, kept, "{name}");
    }
}

/// Opens a file by its handle, as a server for NFS does.
#[allow(unsafe_code)]
fn by_handle(path: &Path, flags: i32) -> std::io::Result<fs::File> {
    use std::os::fd::{AsRawFd, FromRawFd};
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let place = fs::File::open(path.parent().unwrap()).unwrap();
    let name = std::ffi::CString::new(path.file_name().unwrap().as_encoded_bytes()).unwrap();
    let (mut handle, mut mount) = (Handle { bytes: 128, kind: 0, data: [0; 128] }, 0_i32);
    // SAFETY: the kernel reads the name and writes no more than 128 bytes of handle after its head,
    // and one number.
    let named = unsafe {
        let (handle, mount) = (&raw mut handle, &raw mut mount);
        libc::syscall(libc::SYS_name_to_handle_at, place.as_raw_fd(), name.as_ptr(), handle, mount, 0)
    };
    assert_eq!(named, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel reads the handle that it wrote.
    let opened =
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, place.as_raw_fd(), &raw mut handle, flags) };
    if opened < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: nobody else knows of the descriptor that was just made.
    Ok(unsafe { fs::File::from_raw_fd(opened as i32) })
}

#[test]
fn what_is_appended_goes_to_the_end_wherever_the_kernel_believes_it() {
    if no_fuse() {
        return;
    }
    let forever = Duration::from_hours(1);
    let config = || VfsConfig { attr_ttl: forever, entry_ttl: forever, ..VfsConfig::default() };
    let volume = Volume::new(0);
    let (one, two) = (Mounted::of(&volume, config()), Mounted::of(&volume, config()));
    let (here, there) = (one.path().join("log"), two.path().join("log"));
    let append = |path: &Path, text: &str| {
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    };
    fs::write(&here, "first").unwrap();
    append(&there, " second");
    append(&here, " third");
    append(&there, " fourth");
    let mut file = by_handle(&here, libc::O_WRONLY | libc::O_APPEND).expect("no path is looked up again");
    file.write_all(b" fif").unwrap();
    file.write_all(b"th").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(&here).unwrap(), "first second third fourth fifth");
    assert_eq!(fs::read_to_string(&there).unwrap(), "first second third fourth fifth");
    fs::OpenOptions::new().write(true).open(&there).unwrap().set_len(5).unwrap();
    append(&here, " again");
    assert_eq!(fs::read_to_string(&there).unwrap(), "first again");
    assert_eq!(fs::read_to_string(&here).unwrap(), "first again");
}

#[test]
fn what_is_appended_past_the_pages_keeps_its_order() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    let (from, to) = (mounted.path().with_extension("source"), mounted.path().join("log"));
    let parts: Vec<u8> = (0..16_u8).flat_map(|part| vec![part; 1 << 20]).collect();
    fs::write(&from, &parts).unwrap();
    fs::write(&to, []).unwrap();
    let (source, target) = (format!("if={}", from.display()), format!("of={}", to.display()));
    let flags = ["bs=16M", "oflag=append,direct", "conv=notrunc", "status=none"];
    for _ in 0..4 {
        assert!(Command::new("dd").args([&source, &target]).args(flags).status().unwrap().success());
    }
    fs::remove_file(from).unwrap();
    assert!(fs::read(&to).unwrap() == parts.repeat(4), "parts lie in another order than they were written");
}

#[test]
fn the_kernel_is_believed_about_callers_of_another_pid_namespace() {
    if no_fuse() || fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = dir.path().join("mnt");
    fs::create_dir(&root).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--"]).arg(std::env::current_exe().unwrap());
    command.args(["part", "--exact", "--ignored", "--nocapture"]).env("PART_PATH", &root);
    let mut served = Served { server: command.spawn().unwrap(), at: root.clone() };
    let end = Instant::now() + Duration::from_mins(1);
    while fs::metadata(root.join(".stats")).is_err() {
        assert!(served.server.try_wait().unwrap().is_none() && Instant::now() < end, "it is not served");
        thread::yield_now();
    }
    let as_user = |groups: &str, command: &str, file: &Path| {
        let user = ["--reuid=1000", "--regid=1000", &format!("--groups={groups}")];
        let mut run = Command::new("setpriv");
        run.args(user).args(["bash", "-c", command, "-"]).arg(file).stderr(std::process::Stdio::null());
        run.status().unwrap().success()
    };
    let (ours, file) = (root.join("d"), root.join("d/x"));
    fs::create_dir(&ours).unwrap();
    std::os::unix::fs::chown(&ours, None, Some(2000)).unwrap();
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(!as_user("3000", "touch $1", &file), "no member makes no file");
    assert!(as_user("2000", "touch $1 && echo text > $1 && chgrp 2000 $1 && chmod 2770 $1", &file));
    let made = fs::metadata(&file).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777, made.len()), (1000, 2000, 0o2770, 5));
    assert!(!as_user("3000", "cat $1", &file) && as_user("2000", "cat $1 && mv $1 $1.new", &file));
    let foreign = root.join("d/foreign");
    fs::write(&foreign, "").unwrap();
    assert!(!as_user("2000", "chmod 777 $1", &foreign), "only the owner may");
    assert!(as_user("2000", "rm -f $1", &foreign), "the directory's group may");
    assert!(Command::new("umount").arg(&root).status().unwrap().success());
    assert!(served.server.wait().unwrap().success());
}

/// Another process that serves a mount, for as long as the test.
struct Served {
    server: std::process::Child,
    at: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.server.kill();
            let _ = self.server.wait();
            let _ = Command::new("umount").args(["--lazy"]).arg(&self.at).status();
        }
    }
}

/// What this program does when a test starts it once more.
#[test]
#[ignore = "a part that other tests start"]
fn part() {
    let at = std::env::var_os("PART_PATH").expect("PART_PATH");
    let (vfs, adapter) = Volume::new(0).open(VfsConfig::default());
    let config = Config { features: adapter.features(), ..Config::default() };
    let mut options = MountOptions::new("memory", "sluice");
    options.allow_other = true;
    Session::mount(adapter, Path::new(&at), &options, config).unwrap().run().unwrap();
    vfs.close(None).unwrap();
}
