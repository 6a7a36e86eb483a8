//! The operations against the reference file system, against each other, and against their budget of trips.

mod against_model;
mod races;
mod storm;
mod trips;

use std::sync::Arc;

use sluice_meta::{Meta, Options, engine::Engine, op::At, ops::create::Create, schema::VolumeFormat};
use sluice_types::{Caller, FileType, Ino, Name, Time};

/// An open, empty volume without a trash.
fn volume(engine: Arc<dyn Engine>) -> Arc<Meta> {
    let format = VolumeFormat {
        name: "test".into(),
        uuid: "9d6d5a4e-6a86-4d3c-8a5f-2f2b1f7c0a11".into(),
        ..VolumeFormat::default()
    };
    Meta::format(engine.as_ref(), &format, Time { sec: 1_700_000_000, nsec: 0 }).expect("format");
    Meta::open(engine, Options { recall: false, ..Options::default() }).expect("open")
}

fn at(dir: u64, name: &str) -> At {
    At::new(Ino(dir), Name::new(name.as_bytes()).expect("valid"))
}

fn create(dir: u64, name: &str, ino: u64, kind: FileType) -> Create {
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
