//! Modes, owners, times, extended attributes and ACLs.

use sluice_fs::{Acl, AclEntry, AclRule, FsError, SetTime, Time, User, XattrMode};

use crate::rig::{Rig, fails, put};

pub(crate) fn modes_owners_and_times_are_set(rig: &Rig) {
    let fs = rig.root();
    put(&fs, "/f", b"");
    fs.symlink("f", "/l").unwrap();
    fs.set_mode("/l", 0o4751).unwrap();
    fs.set_owner("/l", Some(7), None, true).unwrap();
    fs.set_owner("/l", None, Some(8), false).unwrap();
    let at = |sec| SetTime::At(Time { sec, nsec: 5 });
    fs.set_times("/l", Some(at(100)), Some(at(-200)), true).unwrap();
    let (file, link) = (fs.stat("/l").unwrap().attr, fs.lstat("/l").unwrap().attr);
    assert_eq!((file.uid, file.gid, file.mode), (7, 0, 0o751), "setuid goes with the owner");
    assert_eq!((file.atime.sec, file.mtime), (100, Time { sec: -200, nsec: 5 }));
    assert_eq!((link.uid, link.gid), (0, 8));
    fs.set_times("/f", None, Some(SetTime::Now), true).unwrap();
    let now = fs.stat("/f").unwrap().attr;
    assert!(now.atime.sec == 100 && now.mtime.sec > 1_700_000_000);
}

pub(crate) fn xattrs_are_kept_by_kind(rig: &Rig) {
    let fs = rig.root();
    let ann = rig.volume.fs(&User::new(1000, 100));
    put(&fs, "/f", b"");
    fs.set_owner("/f", Some(1000), Some(100), true).unwrap();
    fs.set_mode("/f", 0o600).unwrap();
    let any = XattrMode::Any;
    ann.set_xattr("/f", "user.a", b"1", any).unwrap();
    fails(ann.set_xattr("/f", "user.a", b"2", XattrMode::Create), FsError::Exists);
    fails(ann.set_xattr("/f", "user.b", b"2", XattrMode::Replace), FsError::NoData);
    for kind in ["trusted.x", "security.x"] {
        fails(ann.set_xattr("/f", kind, b"1", any), FsError::Perm);
        fs.set_xattr("/f", kind, b"secret", any).unwrap();
        fails(ann.remove_xattr("/f", kind), FsError::Perm);
    }
    fails(ann.xattr("/f", "trusted.x"), FsError::NoData);
    assert_eq!(fs.xattr("/f", "trusted.x").unwrap(), b"secret");
    let mut names = ann.xattrs("/f").unwrap();
    names.sort();
    assert_eq!(names, [b"security.x".to_vec(), b"user.a".to_vec()]);
    assert_eq!(fs.xattrs("/f").unwrap().len(), 3);
    fails(fs.set_xattr("/f", "other.x", b"", any), FsError::NotSupported);

    let bob = rig.volume.fs(&User::new(1001, 101));
    fails(bob.xattr("/f", "user.a"), FsError::Access);
    fails(bob.set_xattr("/f", "user.a", b"", any), FsError::Access);
    fs.symlink("nothing", "/l").unwrap();
    fs.mkdir("/tmp", 0o777).unwrap();
    fs.set_mode("/tmp", 0o1777).unwrap();
    fails(bob.set_xattr("/tmp", "user.a", b"", any), FsError::Perm);
    ann.remove_xattr("/f", "user.a").unwrap();
    fails(ann.remove_xattr("/f", "user.a"), FsError::NoData);
}

pub(crate) fn acls_decide(rig: &Rig) {
    let fs = rig.root();
    let [ann, bob, eve] = [1000, 1001, 1002].map(|uid| rig.volume.fs(&User::new(uid, uid)));
    fs.mkdir("/d", 0o750).unwrap();
    fs.set_owner("/d", Some(1000), Some(1000), true).unwrap();
    put(&ann, "/d/f", b"f");
    let grants = |id, perm, base: u16| AclRule {
        owner: 7,
        group: base,
        mask: 7,
        other: 0,
        users: vec![AclEntry { id, perm }],
        groups: vec![],
    };
    assert_eq!(ann.acl("/d", Acl::Access).unwrap(), None);
    fails(bob.set_acl("/d", Acl::Access, Some(&grants(1001, 7, 0))), FsError::Perm);
    fails(bob.stat("/d/f"), FsError::Access);
    // Through the directory, but not to list it.
    ann.set_acl("/d", Acl::Access, Some(&grants(1001, 1, 0))).unwrap();
    bob.stat("/d/f").unwrap();
    fails(bob.list("/d", None, 10), FsError::Access);
    fails(bob.create("/d/g"), FsError::Access);
    fails(eve.stat("/d/f"), FsError::Access);
    ann.set_acl("/d", Acl::Access, Some(&grants(1001, 7, 0))).unwrap();
    assert_eq!(bob.list_all("/d").unwrap().len(), 1);
    assert_eq!(ann.acl("/d", Acl::Access).unwrap().unwrap().users, [AclEntry { id: 1001, perm: 7 }]);
    // Inherited.
    ann.set_acl("/d", Acl::Default, Some(&grants(1002, 6, 0))).unwrap();
    put(&bob, "/d/g", b"g");
    let inherited = bob.acl("/d/g", Acl::Access).unwrap().unwrap();
    assert_eq!(inherited.users, [AclEntry { id: 1002, perm: 6 }]);
    fails(ann.set_acl("/d/f", Acl::Default, Some(&grants(1, 1, 1))), FsError::Access);
    // What was read before another change is not what is replaced.
    let (was, mode) = (ann.acl("/d", Acl::Access).unwrap().unwrap(), AclRule::empty().chmod(0o700));
    fails(ann.change_acl("/d", Acl::Access, &mode, Some(&was)), FsError::Again);
    ann.change_acl("/d", Acl::Access, &was, Some(&mode)).unwrap();
    fails(ann.change_acl("/d", Acl::Access, &was, Some(&was)), FsError::Again);
    ann.change_acl("/d", Acl::Access, &mode, Some(&was)).unwrap();
    let defaults = ann.acl("/d", Acl::Default).unwrap().unwrap();
    fails(ann.change_acl("/d", Acl::Default, &AclRule::empty(), Some(&was)), FsError::Again);
    ann.change_acl("/d", Acl::Default, &defaults, None).unwrap();
    ann.change_acl("/d", Acl::Default, &AclRule::empty(), Some(&defaults)).unwrap();
    ann.set_acl("/d", Acl::Access, None).unwrap();
    fails(bob.stat("/d/f"), FsError::Access);
}
