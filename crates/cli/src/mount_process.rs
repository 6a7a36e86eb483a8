//! The exit codes, limits and priority of the processes of a mount.

use std::env;

use rustix::process::{Resource, Rlimit};

/// Exit code when the volume is gone, as `JuiceFS` has it.
pub(crate) const VOLUME_GONE: u8 = 11;
/// Exit code when another mount process goes on.
pub(crate) const HANDED_OVER: u8 = 12;

/// Files that may be open, if root asks for it. A quarter of them may be cache files, of which a
/// member of a cache group keeps up to 32,768 open.
const OPEN_FILES: u64 = 1 << 20;

/// Whatever makes a process that others rest on steadier, as far as it is permitted: descriptors,
/// and not to be the first that goes when memory is short.
pub(crate) fn steady() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.map(|most| most.max(OPEN_FILES));
    for maximum in [most, limit.maximum] {
        if rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
            break;
        }
    }
    if env::var_os("JFS_NO_OOM_ADJUST").is_none() {
        let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    }
}

/// A mount process's priority, as far as it is permitted.
pub(crate) fn raise_priority() {
    let _ = rustix::process::setpriority_process(None, -19);
}
