//! What the system says about this process.

use std::fs;

use super::family::Families;

/// Ticks of the system's clock in a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

/// Adds what is known. What `/proc` does not say is left out.
pub(crate) fn add(families: &mut Families) {
    if let Some(stat) = stat() {
        families.gauge(("juicefs_cpu_usage", "CPU time used by the client, in seconds."), stat.cpu);
        families.gauge(("juicefs_memory", "Memory used by the client, in bytes."), stat.resident);
        families.counter(
            ("juicefs_process_cpu_seconds_total", "CPU time in user and kernel mode, in seconds."),
            stat.cpu,
        );
        families.gauge(
            ("juicefs_process_resident_memory_bytes", "Memory of the process that is in use."),
            stat.resident,
        );
        families.gauge(
            ("juicefs_process_virtual_memory_bytes", "Memory of the process that is mapped."),
            stat.mapped,
        );
        if let Some(booted) = booted() {
            families.gauge(
                ("juicefs_process_start_time_seconds", "When the process started, in Unix seconds."),
                booted + stat.started,
            );
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Without the one that lists them.
        let count = open.count().saturating_sub(1) as f64;
        families.gauge(("juicefs_process_open_fds", "File descriptors in use."), count);
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        families.gauge(("juicefs_process_max_fds", "File descriptors that may be in use."), most as f64);
    }
}

/// Of `/proc/self`: seconds and bytes.
struct Stat {
    cpu: f64,
    /// Since the system was started.
    started: f64,
    mapped: f64,
    resident: f64,
}

fn stat() -> Option<Stat> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| Some(fields.get(at)?.parse::<u64>().ok()? as f64);
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.split_whitespace().next()?.parse::<u64>().ok()? as f64 * 1024.0)
    };
    Some(Stat {
        cpu: (number(11)? + number(12)?) / TICKS,
        started: number(19)? / TICKS,
        mapped: kib("VmSize:")?,
        resident: kib("VmRSS:")?,
    })
}

/// When the system was started, in Unix seconds.
fn booted() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}
