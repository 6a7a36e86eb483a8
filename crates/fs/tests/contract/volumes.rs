//! Volumes that several callers of one process share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use sluice_fs::{FsError, User, Volume};
use sluice_vfs::Vfs;

use crate::rig::{Rig, get, put};

/// A key that no other test uses.
fn key(rig: &Rig, name: &str) -> String {
    format!("{:p} {name}", Arc::as_ptr(&rig.volume))
}

pub(crate) fn one_volume_for_each_key(rig: &Rig) {
    let opened = AtomicU32::new(0);
    let open = |name: &str| {
        Volume::shared(key(rig, name), || {
            opened.fetch_add(1, Ordering::SeqCst);
            Ok::<_, FsError>(rig.open())
        })
        .unwrap()
    };
    let volumes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(|| open("one"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(volumes.iter().all(|volume| Arc::ptr_eq(volume, &volumes[0])));
    let other = open("other");
    assert!(!Arc::ptr_eq(&other, &volumes[0]));
    assert_eq!((opened.load(Ordering::SeqCst), rig.sessions()), (2, 3));
    let users = [0, 1, 2].map(|uid| volumes[0].fs(&User::new(uid, uid)));
    drop(volumes);
    assert_eq!(rig.sessions(), 3);
    drop(users);
    assert_eq!(rig.sessions(), 2);
    drop(other);
    assert_eq!(rig.sessions(), 1);
    open("one");
    assert_eq!((opened.load(Ordering::SeqCst), rig.sessions()), (3, 1));
}

pub(crate) fn the_last_user_closes(rig: &Rig) {
    let fs = Volume::new(rig.open()).fs(&User::root());
    put(&fs, "/f", b"1");
    let file = fs.create("/g").unwrap();
    file.append(b"written").unwrap();
    drop(fs);
    // An open file keeps the volume open.
    assert_eq!(rig.sessions(), 2);
    file.append(b" and written").unwrap();
    drop(file);
    assert_eq!(rig.sessions(), 1);
    assert_eq!(get(&rig.root(), "/g"), b"written and written");
}

pub(crate) fn a_failed_open_is_tried_again(rig: &Rig) {
    let key = key(rig, "failed");
    let refused = Volume::shared(&key, || Err::<Arc<Vfs>, _>(FsError::io("refused"))).map(drop);
    assert_eq!(refused, Err(FsError::io("refused")));
    let volume = Volume::shared(&key, || Ok::<_, FsError>(rig.open())).unwrap();
    volume.flush().unwrap();
}
