//! Checks whether tests can mount on this machine.
//!
//! What must stay true: a test that needs a mount and cannot have one fails. Only
//! `SLUICE_TEST_NO_FUSE=1`, which states that this machine has no FUSE, lets the test pass without
//! a check.

use std::{
    env,
    fs::{self, File},
};

/// Whether the machine is known to have no FUSE; the test that asks then ends.
///
/// # Panics
/// If nobody said so and `/dev/fuse` cannot be opened.
#[track_caller]
pub fn no_fuse() -> bool {
    if env::var_os("SLUICE_TEST_NO_FUSE").is_some() {
        eprintln!("skipped: SLUICE_TEST_NO_FUSE says that there is no FUSE here");
        return true;
    }
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = opened {
        panic!(
            "/dev/fuse cannot be opened ({error}), and this test mounts. Load the module (modprobe fuse), give the \
             container --device /dev/fuse, or run as root; SLUICE_TEST_NO_FUSE=1 skips all tests that mount"
        );
    }
    false
}

/// Whether the kernel has no FUSE over `io_uring`, which is switched on if it is off; the test that
/// asks then ends, and says so.
pub fn no_rings() -> bool {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    let on =
        fs::read_to_string(SWITCH).is_ok_and(|state| state.trim() == "Y") || fs::write(SWITCH, "Y").is_ok();
    if !on {
        eprintln!("skipped: this kernel has no FUSE over io_uring, or {SWITCH} cannot be set to Y");
    }
    !on
}
