//! The CPUs of the machine, and the kernel's switch for rings.

use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The kernel's switch for FUSE over `io_uring`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How many CPUs the machine can have: the kernel wants a ring for each.
///
/// # Errors
/// If the kernel does not say.
pub(crate) fn possible() -> io::Result<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(&text).ok_or_else(|| io::Error::other(format!("unknown list of CPUs: {}", text.trim())))
}

/// Counts a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0, |all: u16, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        all.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Switches the kernel's support on.
///
/// # Errors
/// If the kernel has no support, or this process may not switch it on.
pub(crate) fn switch_on() -> Result<(), String> {
    match fs::read_to_string(SWITCH) {
        Ok(state) if state.trim() == "Y" => return Ok(()),
        Ok(_) => {}
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err("the kernel is older than Linux 6.14, or is built without it".into());
        }
        Err(why) => return Err(format!("cannot read {SWITCH}: {why}")),
    }
    fs::write(SWITCH, "Y").map_err(|why| format!("{SWITCH} is N, and cannot be changed: {why}"))
}

/// Keeps the calling thread on a CPU. Without the right to that it may run anywhere.
pub(crate) fn pin(cpu: u16) -> Option<CpuSet> {
    let before = sched_getaffinity(None).ok()?;
    let mut one = CpuSet::new();
    if usize::from(cpu) >= CpuSet::MAX_CPU {
        return None;
    }
    one.set(cpu.into());
    match sched_setaffinity(None, &one) {
        Ok(()) => Some(before),
        Err(why) => {
            tracing::debug!("the thread of FUSE ring {cpu} is not kept on its CPU: {why}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!((count("0\n"), count("0-1\n"), count("0-3,8,10-11\n")), (Some(1), Some(2), Some(7)));
        assert_eq!((count(""), count("1-"), count("3-1")), (None, None, None));
    }
}
