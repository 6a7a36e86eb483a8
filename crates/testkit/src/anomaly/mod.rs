//! The isolation that the contract promises, as scripts one can read and run: one file for each
//! anomaly.
//!
//! A script interleaves transactions step by step, and states which result must never (or always)
//! occur. `weak` states the result on an engine that guarantees no more than the contract. These
//! results show the anomalies that operations must expect.
//!
//! ```text
//! given node 5 uid=0          a record that exists
//! t1 read node 5 lock         read, and hold until the commit
//! t1 if node 5 uid=0          give up unless this was read
//! t1 put node 5 uid=1         change what was read; `add` adds to it
//! t1 commit
//! never t1 ok and node 5 uid=0
//! ```

mod runner;
mod script;

use std::sync::Arc;

use sluice_meta::engine::Engine;

pub use script::Script;

macro_rules! scripts {
    ($($name:ident)*) => {
        /// Every script: its name and its text.
        pub const SCRIPTS: &[(&str, &str)] =
            &[$((stringify!($name), include_str!(concat!("scripts/", stringify!($name), ".txt")))),*];
    };
}

scripts! {
    dirty_read
    dirty_write
    lost_update_after_get
    lost_update_after_lock
    lost_update_of_commuting_writes
    non_repeatable_read
    non_repeatable_read_guarded
    phantom_in_a_directory
    read_skew_after_get
    read_skew_guarded
    write_skew_after_get
    write_skew_guarded
    create_against_create
    create_against_rmdir
    create_against_rmdir_unguarded
    link_against_unlink
    link_against_unlink_unlocked
    rename_cycle
    rename_cycle_unlocked
    rmdir_against_create
    unlink_against_unlink
}

/// Runs one script on a fresh store. `weak` asserts the outcome that only the weakest engine shows
/// too.
///
/// # Panics
/// If the outcome is forbidden, or a transaction hangs.
pub fn run(name: &str, engine: &Arc<dyn Engine>, weak: bool) {
    let (_, text) = SCRIPTS.iter().find(|(known, _)| *known == name).expect("no such script");
    let script = Script::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    runner::run(name, &script, engine, weak);
}

/// Runs every script, each on a fresh store.
pub fn run_all(factory: &dyn Fn() -> Arc<dyn Engine>, weak: bool) {
    for (name, _) in SCRIPTS {
        eprintln!("anomaly: {name}");
        run(name, &factory(), weak);
    }
}
