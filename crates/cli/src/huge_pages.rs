//! Who of this program gets huge pages: only buffers of blocks, which ask for them.
//!
//! What must stay true: the allocator gets none. A thread that needs a few KiB would take and clear
//! 2 MiB.

use std::{env, ffi::OsString, fs, process::Command};

/// Tells the allocator of a new process, by `0`, not to ask for huge pages.
const ALLOCATOR_ASKS: &str = "MIMALLOC_ALLOW_THP";

/// Where the kernel says who gets huge pages.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Lets a new process use huge pages for blocks.
pub(crate) fn allow(command: &mut Command) {
    command.env(ALLOCATOR_ASKS, "0");
}

/// Forbids huge pages to this process, unless only blocks would get them. It does if the allocator
/// asks for them, if the kernel gives them to all, and if the arguments say so.
pub(crate) fn limit(arguments: &[OsString]) {
    let refused = arguments.iter().any(|argument| argument == "--disable-transparent-hugepage");
    let allocator_asks = env::var_os(ALLOCATOR_ASKS).is_none_or(|asks| asks != "0");
    let on_request = fs::read_to_string(SETTING).is_ok_and(|who| who.contains("[madvise]"));
    // A kernel without them has nothing to disable.
    let _ = rustix::thread::disable_transparent_huge_pages(refused || allocator_asks || !on_request);
}
