//! Callers that have a signal, and whose requests were not interrupted.
//!
//! A kernel forgets to send the interrupt if the signal came before the request was put into the
//! ring (seen up to Linux 6.18).

use std::fs;

/// Whether a signal waits for a thread, which the thread neither blocks nor ignores.
pub(crate) fn has_signal(thread: u32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| waits(&status))
}

fn waits(status: &str) -> bool {
    let set = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !(set("SigBlk:") | set("SigIgn:")) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_count_that_are_neither_blocked_nor_ignored() {
        let status = |pending: u64, shared: u64, blocked: u64, ignored: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(waits(&status(0x100, 0, 0, 0)) && waits(&status(0, 2, 1, 4)));
        assert!(!waits(&status(2, 4, 2, 4)) && !waits(&status(0, 0, 0, 0)) && !waits(""));
        assert!(!has_signal(std::process::id()));
    }
}
