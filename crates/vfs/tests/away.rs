//! An engine that does not answer, or not well: what a mount says all the same, and what it leaves
//! behind.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rig::{Client, Volume};
use sluice_meta::{
    Options,
    engine::{EngineError, Read},
};
use sluice_testkit::wrap::Hooked;
use sluice_types::Ino;
use sluice_vfs::VfsConfig;

const ROOT: Ino = Ino::ROOT;

fn mount(
    volume: &Volume,
    ask: impl Fn(&[Read]) -> Result<(), EngineError> + Send + Sync + 'static,
) -> Client {
    let engine = Hooked::new(Arc::clone(&volume.engine) as _).before_ask(ask);
    let ttl = Duration::ZERO;
    let config = VfsConfig { attr_ttl: ttl, entry_ttl: ttl, dir_entry_ttl: ttl, ..VfsConfig::default() };
    volume.mount_on(Arc::new(engine), Options::default(), config)
}

#[test]
fn df_answers_although_the_engine_never_does() {
    let volume = Volume::new();
    let hangs = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&hangs);
    let client = mount(&volume, move |_| {
        while stop.load(Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    });
    client.mkdir(ROOT, "d").unwrap();
    let attr = client.vfs.getattr(&client.never, ROOT).unwrap().0;
    hangs.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let size = client.vfs.statfs();
    assert_eq!((size.used, size.inodes), (4096, 1), "the very first");
    // `df` asks for these first.
    assert_eq!(client.vfs.getattr(&client.never, ROOT), Ok((attr, Duration::ZERO)));
    assert_eq!(client.vfs.statfs(), size);
    // Three times 0.3 s, on a machine that has much else to do.
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert!(hangs.swap(false, Ordering::SeqCst), "it hung all the time");
}

#[test]
fn what_others_wrote_shows_in_df_at_once() {
    let volume = Volume::new();
    let (one, other) = (volume.mount(), volume.mount());
    other.mkdir(ROOT, "d").unwrap();
    rig::eventually("the directory to be counted", || one.vfs.statfs().inodes == 1);
}

#[test]
fn an_open_that_fails_at_its_end_leaves_no_handle() {
    let volume = Volume::new();
    volume.mount().put(ROOT, "f", b"content");
    let (count, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, fails) = (Arc::clone(&count), Arc::clone(&fails_at));
    let client = mount(&volume, move |_| {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        if number == fails.load(Ordering::SeqCst) {
            return Err(EngineError::Refused { engine: "test".into(), reason: "a test".into() });
        }
        Ok(())
    });
    let open = || client.create(ROOT, "f");
    count.store(0, Ordering::SeqCst);
    client.close(open().unwrap().1.fh).unwrap();
    let asked = count.swap(0, Ordering::SeqCst);
    for fails in 1..=asked {
        count.store(0, Ordering::SeqCst);
        fails_at.store(fails, Ordering::SeqCst);
        assert!(open().is_err(), "read {fails} of {asked}");
        let text = client.vfs.stats_text();
        assert!(text.contains("fuse_open_handlers 0\n") && text.contains("open_files 0\n"), "{text}");
    }
}
