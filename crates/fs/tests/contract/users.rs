//! Users: who may do what.

use sluice_fs::{FsError, RenameMode, User};

use crate::{
    kernel::{Act, Kernel, ours},
    rig::{Rig, put},
};

/// Acts of root, from which each case begins.
fn tree() -> Vec<Act> {
    let path = |path: &str| path.to_owned();
    let mut acts = Vec::new();
    let mut dir = |name: &str, mode, uid, gid| {
        acts.push(Act::Mkdir(path(name), 0o755));
        acts.push(Act::SetOwner(path(name), Some(uid), Some(gid), true));
        acts.push(Act::SetMode(path(name), mode));
    };
    dir("open", 0o755, 1000, 100);
    dir("open/sub", 0o755, 1000, 100);
    dir("no-search", 0o644, 1000, 100);
    dir("no-list", 0o311, 1000, 100);
    dir("way", 0o755, 1000, 100);
    dir("way/closed", 0o700, 1000, 100);
    dir("way/closed/deep", 0o777, 1000, 100);
    dir("by-group", 0o770, 1000, 100);
    dir("not-group", 0o707, 1000, 100);
    dir("sticky", 0o1777, 0, 0);
    dir("setgid", 0o2777, 0, 300);
    let mut file = |name: &str, mode, uid, gid| {
        acts.push(Act::CreateNew(path(name), 0o644));
        acts.push(Act::SetOwner(path(name), Some(uid), Some(gid), true));
        acts.push(Act::SetMode(path(name), mode));
    };
    for dir in
        ["open", "no-search", "no-list", "way/closed", "way/closed/deep", "by-group", "not-group", "sticky"]
    {
        file(&format!("{dir}/f"), 0o644, 1000, 100);
    }
    file("open/private", 0o600, 1000, 100);
    file("open/group", 0o660, 1000, 100);
    file("open/not-group", 0o606, 1000, 100);
    file("open/not-owner", 0o066, 1000, 100);
    file("open/program", 0o4755, 1000, 100);
    file("open/of-group", 0o2775, 1000, 100);
    file("open/writable", 0o6777, 1000, 100);
    file("sticky/of-bob", 0o666, 1001, 101);
    acts.push(Act::Symlink(path("way/closed/f"), path("into")));
    acts.push(Act::Symlink(path("open"), path("to-open")));
    acts.push(Act::SetOwner(path("into"), Some(1000), None, false));
    acts
}

/// What each user tries, on each of the paths.
fn tries() -> Vec<Act> {
    let mut acts = Vec::new();
    let paths = [
        "open",
        "open/sub",
        "open/f",
        "open/private",
        "open/group",
        "open/not-group",
        "open/not-owner",
        "open/program",
        "open/of-group",
        "open/writable",
        "open/absent",
        "no-search",
        "no-search/f",
        "no-search/absent",
        "no-list",
        "no-list/f",
        "no-list/absent",
        "way/closed",
        "way/closed/f",
        "way/closed/deep/f",
        "way/closed/absent",
        "way/closed/..",
        "way/closed/.",
        "by-group",
        "by-group/f",
        "by-group/absent",
        "not-group/f",
        "sticky/f",
        "sticky/of-bob",
        "sticky/absent",
        "setgid",
        "into",
        "to-open/private",
        "to-open/absent",
        "open/f/x",
    ];
    for path in paths {
        let p = || path.to_owned();
        acts.extend([Act::Stat(p()), Act::Lstat(p()), Act::Read(p()), Act::List(p()), Act::Readlink(p())]);
        acts.extend([0, 1, 2, 4, 7].map(|bits| Act::Access(p(), bits)));
        acts.extend([Act::Write(p()), Act::Stat(p()), Act::Empty(p()), Act::SetLen(p(), 7)]);
        acts.extend([Act::TouchNow(p()), Act::SetTimes(p())]);
        for name in ["user.x", "trusted.x", "security.x"] {
            acts.extend([Act::SetXattr(p(), name), Act::GetXattr(p(), name), Act::RemoveXattr(p(), name)]);
        }
        acts.extend([Act::SetMode(p(), 0o6770), Act::Stat(p())]);
        acts.extend([100, 101, 300].map(|gid| Act::SetOwner(p(), None, Some(gid), true)));
        acts.extend([1000, 1001].map(|uid| Act::SetOwner(p(), Some(uid), None, true)));
    }
    acts
}

/// What each user tries to change of names, on each of the directories.
fn changes() -> Vec<Act> {
    let mut acts = Vec::new();
    for dir in
        ["open", "no-search", "no-list", "way/closed", "by-group", "not-group", "sticky", "setgid", "to-open"]
    {
        let p = |name: &str| format!("{dir}/{name}");
        acts.extend([
            Act::CreateNew(p("f"), 0o644),
            Act::CreateNew(p("new"), 0o6777),
            Act::Stat(p("new")),
            Act::Create(p("new"), 0o644),
            Act::Create(p("f"), 0o644),
            Act::Mkdir(p("f"), 0o755),
            Act::Mkdir(p("dir"), 0o6777),
            Act::Stat(p("dir")),
            Act::Symlink("x".into(), p("link")),
            Act::Symlink("x".into(), p("f")),
            Act::Rename(p("f"), p("moved"), RenameMode::NoReplace),
            Act::Rename(p("absent"), p("moved"), RenameMode::Replace),
            Act::Rename(p("moved"), p("new"), RenameMode::Exchange),
            Act::Rename(p("new"), "sticky/moved-here".into(), RenameMode::Replace),
            Act::Rename("sticky/of-bob".into(), p("from-sticky"), RenameMode::Replace),
            Act::Rename(p("sub"), "sticky/sub".into(), RenameMode::Replace),
            Act::Rename(p("dir"), "sticky/dir".into(), RenameMode::Replace),
            Act::Unlink(p("absent")),
            Act::Rmdir(p("absent")),
            Act::Unlink(p("f")),
            Act::Unlink(p("moved")),
            Act::Unlink(p("dir")),
            Act::Rmdir(p("dir")),
            Act::Rmdir(p("f")),
            Act::List(p("")),
        ]);
    }
    acts.extend(["sticky/f", "sticky/of-bob"].map(|path| Act::Unlink(path.into())));
    acts
}

pub(crate) fn the_matrix_of_users(rig: &Rig) {
    let users = [
        ("the owner", User::new(1000, 100)),
        ("a stranger", User::new(1001, 101)),
        ("a member of the group", User::new(1002, 102).with_groups(&[7, 100])),
        ("one whose main group it is", User::new(1003, 100)),
        ("root", User::root()),
    ];
    rig.without_trash();
    let mut differences = Vec::new();
    let mut compared = 0;
    for (case, acts) in [tries(), changes()].iter().enumerate() {
        for (who, user) in &users {
            let Some(kernel) = Kernel::new() else { return };
            let xattrs = kernel.has_xattrs();
            let top = format!("{case}-{}", user.uid);
            let root = rig.root();
            root.mkdir(&top, 0o755).unwrap();
            kernel.act(&User::root(), &Act::Mkdir(top.clone(), 0o755)).unwrap();
            for act in tree() {
                let act = below(&top, &act);
                assert_eq!(ours(&root, &act), Ok(String::new()), "{act:?}");
                assert_eq!(kernel.act(&User::root(), &act), Ok(String::new()), "{act:?}");
            }
            let fs = rig.volume.fs(user);
            for act in acts {
                let of_xattr = matches!(act, Act::GetXattr(..) | Act::SetXattr(..) | Act::RemoveXattr(..));
                if of_xattr && !xattrs {
                    continue;
                }
                let act = below(&top, act);
                let (ours, kernels) = (ours(&fs, &act), kernel.act(user, &act));
                compared += 1;
                if ours != kernels {
                    differences.push(format!("{who}: {act:?}: {ours:?}, the kernel says {kernels:?}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} of {compared}:\n{}", differences.len(), differences.join("\n"));
    assert!(compared > 3000, "{compared}");
}

/// The act in a directory.
fn below(top: &str, act: &Act) -> Act {
    let mut act = act.clone();
    let put = |path: &mut String| *path = format!("{top}/{path}");
    match &mut act {
        Act::Rename(from, to, _) | Act::Link(from, to) => {
            put(from);
            put(to);
        }
        Act::Symlink(_, path)
        | Act::Stat(path)
        | Act::Lstat(path)
        | Act::Access(path, _)
        | Act::Read(path)
        | Act::Write(path)
        | Act::Empty(path)
        | Act::Create(path, _)
        | Act::CreateNew(path, _)
        | Act::Mkdir(path, _)
        | Act::Unlink(path)
        | Act::Rmdir(path)
        | Act::Readlink(path)
        | Act::List(path)
        | Act::SetMode(path, _)
        | Act::SetOwner(path, ..)
        | Act::TouchNow(path)
        | Act::SetTimes(path)
        | Act::SetLen(path, _)
        | Act::GetXattr(path, _)
        | Act::SetXattr(path, _)
        | Act::RemoveXattr(path, _) => put(path),
    }
    act
}

pub(crate) fn root_without_privileges(rig: &Rig) {
    let root = rig.root();
    root.mkdir("/d", 0o755).unwrap();
    put(&root, "/d/f", b"private");
    root.set_owner("/d/f", Some(1000), Some(100), true).unwrap();
    root.set_mode("/d/f", 0o600).unwrap();
    let plain = rig.volume.fs(&User::new(0, 0));
    let denied = |done: sluice_fs::Result<()>, error| assert_eq!(done.unwrap_err().error, error);
    denied(plain.open("/d/f").map(drop), FsError::Access);
    denied(plain.set_mode("/d/f", 0o777), FsError::Perm);
    denied(plain.set_owner("/d/f", Some(0), None, true), FsError::Perm);
    denied(plain.set_len("/d/f", 0), FsError::Access);
    denied(plain.remove_all("/d/f", true), FsError::Perm);
    // What belongs to root is its own.
    plain.mkdir("/d/sub", 0o700).unwrap();
    plain.set_mode("/d/sub", 0o000).unwrap();
    denied(plain.list("/d/sub", None, 10).map(drop), FsError::Access);
    root.list("/d/sub", None, 10).unwrap();
    denied(plain.set_owner("/d/sub", Some(1), None, true), FsError::Perm);
}

pub(crate) fn superusers_own_what_they_make(rig: &Rig) {
    let hdfs = rig.volume.fs(&User { superuser: true, ..User::new(500, 501) });
    hdfs.mkdir("/d", 0o700).unwrap();
    put(&hdfs, "/d/f", b"x");
    let attr = hdfs.stat("/d/f").unwrap().attr;
    assert_eq!((attr.uid, attr.gid), (500, 501));
    hdfs.set_owner("/d/f", Some(1000), Some(100), true).unwrap();
    hdfs.set_mode("/d/f", 0o000).unwrap();
    put(&hdfs, "/d/f", b"y");
    hdfs.set_mode("/d/f", 0o600).unwrap();
    assert_eq!(hdfs.stat("/d/f").unwrap().attr.uid, 1000);
    hdfs.remove_all("/d", true).unwrap();
}
