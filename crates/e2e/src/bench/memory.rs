//! Rows about memory: the memory of the mount process after `bench` has run, and its highest value.

use super::{Side, Turn, table::field};
use anyhow::Context;
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None, None]);
    }
    let mut volume = turn.volume()?;
    let mount = turn.mount(&mut volume)?;
    let point = mount.to_string_lossy().into_owned();
    let large = turn.plan.sizes.large.to_string();
    volume.command(&["bench", "--big-file-size", &large, &point])?;
    let [resident, highest] = memory(&mount)?;
    volume.unmount()?;
    Ok(vec![Some(resident), Some(highest)])
}

/// MiB of the process that serves the mount. A program may guard it with another one: the larger is
/// meant.
pub(super) fn memory(point: &Path) -> anyhow::Result<[f64; 2]> {
    let mut largest = None;
    for process in servers(point)? {
        let Ok(status) = fs::read_to_string(process.join("status")) else { continue };
        let held = ["VmRSS:", "VmHWM:"].map(|key| field(&status, key));
        largest = largest.max(Some(held));
    }
    let kib = largest.context("no process has the mount point as its argument")?;
    Ok(kib.map(|kib| kib as f64 / 1024.0))
}

/// Has [`memory`] say from now on what was the highest value since this call.
pub(super) fn forget(point: &Path) -> anyhow::Result<()> {
    // A process that has ended meanwhile has nothing to forget.
    servers(point)?.iter().filter(|process| process.exists()).try_for_each(|process| {
        fs::write(process.join("clear_refs"), "5").context("cannot reset the highest memory of a process")
    })
}

/// The directories in `/proc` of the processes that serve a mount point in the folder of a volume,
/// and of those that guard them.
pub(super) fn servers(point: &Path) -> anyhow::Result<Vec<PathBuf>> {
    // A program may have rewritten its arguments into one, and have cut off its end.
    let folder = point.parent().context("a mount point lies in a folder")?.as_os_str().as_encoded_bytes();
    let has = |arguments: &[u8], part: &[u8]| arguments.windows(part.len()).any(|here| here == part);
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(arguments) = fs::read(process.path().join("cmdline")) else { continue };
        if has(&arguments, folder) && has(&arguments, b"mount") {
            found.push(process.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nobody_is_an_error() {
        assert!(memory(Path::new("/nobody/is/mounted/here")).is_err());
    }
}
