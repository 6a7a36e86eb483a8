//! One TiKV for all tests of a program; each test has a prefix of its own.

pub(crate) mod raw;

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use sluice_meta::engine::Engine;
use sluice_meta_kv::TikvEngine;
use sluice_testkit::server::{Tikv, TikvOptions};

/// The servers, which end with this program.
pub(crate) fn shared() -> &'static Tikv {
    static SHARED: OnceLock<Tikv> = OnceLock::new();
    SHARED.get_or_init(|| Tikv::start(TikvOptions::default()).expect("TiKV starts"))
}

/// URL of a volume that nobody else has.
pub(crate) fn fresh_url() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    shared().url(&format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

pub(crate) fn open(url: &str) -> TikvEngine {
    let engine = TikvEngine::open(url).expect("a valid URL");
    engine.prepare().expect("the servers are up");
    engine
}
