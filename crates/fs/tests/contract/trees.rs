//! Whole trees, the trash and quotas.

use sluice_fs::{Clone, FsError, QuotaLimits, QuotaOwner, RenameMode, User};

use crate::rig::{Rig, fails, get, put};

fn grow(rig: &Rig) {
    let fs = rig.root();
    fs.mkdir_all("/t/a/b", 0o755).unwrap();
    put(&fs, "/t/f", &[1; 10_000]);
    put(&fs, "/t/a/g", &[2; 5_000]);
    fs.symlink("f", "/t/a/b/l").unwrap();
}

pub(crate) fn trees_are_cloned_counted_and_removed(rig: &Rig) {
    grow(rig);
    let fs = rig.root();
    let bob = rig.volume.fs(&User::new(1001, 101));
    // What is not stored yet is cloned, too.
    let open = fs.create("/t/open").unwrap();
    open.append(&[3; 3_000]).unwrap();
    fs.clone_tree("/t", "/u", Clone::default()).unwrap();
    assert_eq!((get(&fs, "/u/open").len(), get(&fs, "/u/a/g")), (3_000, vec![2; 5_000]));
    open.close().unwrap();
    fails(fs.clone_tree("/t", "/u", Clone::default()), FsError::Exists);
    fails(bob.clone_tree("/t", "/v", Clone::default()), FsError::Access);
    put(&fs, "/u/a/g", b"changed");
    assert_eq!(get(&fs, "/t/a/g"), vec![2; 5_000]);

    let (sum, denied) = fs.summary("/t").unwrap();
    assert_eq!((sum.files, sum.dirs, sum.length, denied.count), (4, 3, 18_000, 0));
    fs.set_mode("/t/a", 0o700).unwrap();
    let (sum, denied) = bob.summary("/t").unwrap();
    assert_eq!((sum.files, sum.dirs, denied.count), (2, 2, 1));
    fails(bob.summary("/t/a"), FsError::Access);

    fails(bob.remove_all("/t", false), FsError::Access);
    fails(bob.remove_all("/t/a/b", false), FsError::Access);
    fails(bob.remove_all("/t", true), FsError::Perm);
    fails(fs.remove_all("/t/f/", true), FsError::NotDir);
    fails(fs.remove_all("/", true), FsError::Busy);
    fails(fs.remove_all("/absent", true), FsError::NotFound);
    fs.remove_all("/t", true).unwrap();
    fs.remove_all("/u/f", true).unwrap();
    assert!(!fs.exists("/t").unwrap() && !fs.exists("/u/f").unwrap());
    fs.remove_all("/u", true).unwrap();
    assert_eq!(fs.list_all("/").unwrap(), []);
}

pub(crate) fn removed_files_are_in_the_trash(rig: &Rig) {
    grow(rig);
    let fs = rig.root();
    let bob = rig.volume.fs(&User::new(1001, 101));
    fs.unlink("/t/f").unwrap();
    let hour = &fs.list_all("/.trash").unwrap()[0];
    let hour = format!("/.trash/{}", hour.name);
    let removed = fs.list_all(&hour).unwrap();
    assert_eq!(removed.len(), 1);
    let removed = format!("{hour}/{}", removed[0].name);
    assert_eq!(get(&fs, &removed).len(), 10_000);
    // Only superusers put it back.
    fails(bob.rename(&removed, "/back", RenameMode::NoReplace), FsError::Perm);
    fs.rename(&removed, "/t/f", RenameMode::NoReplace).unwrap();
    assert_eq!(get(&fs, "/t/f").len(), 10_000);
    fails(fs.create(format!("{hour}/new")), FsError::NotFound);
}

pub(crate) fn quotas_are_set_checked_and_removed(rig: &Rig) {
    grow(rig);
    let (fs, bob) = (rig.root(), rig.volume.fs(&User::new(1001, 101)));
    let dir = QuotaOwner::Directory(&b"/t"[..]);
    assert_eq!(fs.quota(dir).unwrap(), None);
    let limits = QuotaLimits { space: Some(1 << 20), inodes: Some(5) };
    fails(bob.set_quota(dir, limits, false), FsError::Perm);
    fails(fs.set_quota(dir, QuotaLimits::default(), false), FsError::Invalid);
    fails(fs.set_quota(QuotaOwner::Directory(b"/t/f"), limits, false), FsError::NotDir);
    fails(fs.check_quota(dir, false, false), FsError::NoData);
    let set = fs.set_quota(dir, limits, false).unwrap();
    assert_eq!((set.quota.max_space, set.quota.max_inodes, set.quota.used_inodes), (1 << 20, 5, 5));
    assert_eq!(fs.quota(dir).unwrap(), Some(set.quota));
    fails(fs.mkdir("/t/full", 0o755), FsError::Quota);
    assert_eq!(fs.check_quota(dir, false, true).unwrap().difference(), (0, 0));
    assert_eq!(fs.quotas().unwrap(), vec![(QuotaOwner::Directory(b"/t".to_vec()), set.quota)]);
    fails(bob.quotas(), FsError::Perm);
    fails(bob.quota(QuotaOwner::User(1002)), FsError::Perm);
    assert_eq!(bob.quota(QuotaOwner::User(1001)).unwrap(), None);
    assert_eq!(bob.quota(QuotaOwner::Group(101)).unwrap(), None);
    fs.set_mode("/t", 0o700).unwrap();
    fails(bob.quota(QuotaOwner::Directory(b"/t/a")), FsError::Access);
    fails(bob.remove_quota(dir), FsError::Perm);
    assert!(fs.remove_quota(dir).unwrap() && !fs.remove_quota(dir).unwrap());
    fs.mkdir("/t/room", 0o755).unwrap();
}
