//! A store that several clients open, and helper functions of the cases.

use std::sync::Arc;

use sluice_meta::{Meta, Options, engine::Engine, op::At, ops::create::Create, schema::VolumeFormat};
use sluice_types::{Caller, FileType, Ino, ManualClock, Name, Time};

/// When the clocks of all clients stand.
pub(super) const NOW: Time = Time { sec: 1_700_000_000, nsec: 0 };

/// A store that several clients open.
pub struct SharedStore(Box<dyn Fn() -> Arc<dyn Engine>>);

impl SharedStore {
    /// `open` answers one more handle to the same store, independent of the others, at each call.
    /// What the store needs (a directory, a server) belongs to `open`, and outlives all handles.
    pub fn new(open: impl Fn() -> Arc<dyn Engine> + 'static) -> Self {
        Self(Box::new(open))
    }

    /// One more handle.
    pub fn open(&self) -> Arc<dyn Engine> {
        (self.0)()
    }

    /// Makes a volume and opens it.
    pub fn format(&self, trash_days: i64) -> Arc<Meta> {
        self.format_as(VolumeFormat { trash_days, ..VolumeFormat::default() })
    }

    /// Makes a volume that keeps what each user and group uses, and opens it.
    pub fn format_with_owners(&self, trash_days: i64) -> Arc<Meta> {
        self.format_as(VolumeFormat { trash_days, user_group_quota: true, ..VolumeFormat::default() })
    }

    /// Makes a volume with these settings, and opens it.
    pub fn format_as(&self, format: VolumeFormat) -> Arc<Meta> {
        let format = VolumeFormat {
            name: "test".into(),
            uuid: "9d6d5a4e-6a86-4d3c-8a5f-2f2b1f7c0a11".into(),
            dir_stats: true,
            ..format
        };
        let engine = self.open();
        Meta::format(engine.as_ref(), &format, NOW).expect("format");
        Meta::open(engine, options()).expect("open")
    }

    /// One more client of the volume.
    pub fn client(&self) -> Arc<Meta> {
        Meta::open(self.open(), options()).expect("open")
    }
}

/// How clients open a volume here: the clock stands, so that the trash has one hour.
pub fn options() -> Options {
    Options { clock: Arc::new(ManualClock::new(NOW)), ..Options::default() }
}

/// Makes a fresh, empty store.
pub type Factory<'f> = dyn Fn() -> SharedStore + 'f;

/// A name in a directory.
pub fn at(dir: u64, name: &str) -> At {
    At::new(Ino(dir), Name::new(name.as_bytes()).expect("valid"))
}

/// Makes a node, as the client itself.
pub fn create(dir: u64, name: &str, ino: u64, kind: FileType) -> Create {
    let target = (kind == FileType::Symlink).then(|| bytes::Bytes::from_static(b"target"));
    Create {
        at: at(dir, name),
        ino: Ino(ino),
        kind,
        mode: 0o755,
        umask: 0,
        rdev: 0,
        target,
        caller: Caller::client(),
    }
}

/// The seeds of a random case: `count` of them, or the one that `SLUICE_SEED` names.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SLUICE_SEED") {
        Ok(seed) => vec![seed.parse().expect("SLUICE_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}
