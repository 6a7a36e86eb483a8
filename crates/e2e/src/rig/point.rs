//! Mount points.

use sluice_testkit::wait::until;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// How long anything may take that is not the work itself: a server to start, a mount to come or
/// go.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Unmounts all that is mounted there. Whoever the mount had to guard it may be first: each try is
/// harmless.
pub(crate) fn take_away(point: &Path) {
    let _ = until("the dead mount to go", TIMEOUT, || {
        if mounted(point) {
            let quiet = || Stdio::null();
            let _ = Command::new("umount").arg("-l").arg(point).stdout(quiet()).stderr(quiet()).status();
        }
        !mounted(point)
    });
}

/// Whether something is mounted at `point`.
pub fn mounted(point: &Path) -> bool {
    let Some(wanted) = point.to_str() else { return false };
    std::fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').nth(4) == Some(wanted)))
}

/// Whether what is mounted at `point` has no server any more.
pub(crate) fn dead(point: &Path) -> bool {
    matches!(rustix::fs::statfs(point), Err(rustix::io::Errno::NOTCONN))
}
