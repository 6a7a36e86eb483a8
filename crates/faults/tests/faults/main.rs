//! Faults of the whole stack below FUSE: what applications see, and what is there afterwards.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod answers;
mod damage;
mod database;
mod dead;
mod fencing;
mod limits;
mod objects;
mod restarts;

use sluice_testkit::server::Redis;
use sluice_types::Ino;

const ROOT: Ino = Ino::ROOT;

/// Whether there is a server to break; says so if not.
fn no_redis() -> bool {
    let missing = !Redis::is_installed();
    if missing {
        eprintln!("skipped: redis-server is not installed");
    }
    missing
}
