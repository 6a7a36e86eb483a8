//! Rows about memory: the memory of the mount process after `bench` has run, and its highest value.

use super::{Side, Turn, table::field};
use anyhow::Context;
use std::{fs, path::Path};

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
    let point = point.as_os_str().as_encoded_bytes();
    let mut largest = None;
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(arguments) = fs::read(process.path().join("cmdline")) else { continue };
        // A program may have rewritten its arguments into one.
        if !arguments.windows(point.len()).any(|part| part == point) {
            continue;
        }
        let Ok(status) = fs::read_to_string(process.path().join("status")) else { continue };
        let held = ["VmRSS:", "VmHWM:"].map(|key| field(&status, key));
        largest = largest.max(Some(held));
    }
    let kib = largest.context("no process has the mount point as its argument")?;
    Ok(kib.map(|kib| kib as f64 / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nobody_is_an_error() {
        assert!(memory(Path::new("/nobody/is/mounted/here")).is_err());
    }
}
