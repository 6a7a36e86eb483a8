//! What other clients see of this process.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    process,
};

use sluice_meta::schema::SessionInfo;
use sluice_types::{Clock as _, SystemClock};

/// Version text in session records. `JuiceFS` clients show it, and compare nothing with it.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+sluice");

/// What other clients see of this process, which uses the volume for `purpose`: a mount point, or
/// the name of a tool.
pub fn session_info(purpose: &str) -> SessionInfo {
    SessionInfo {
        version: VERSION.into(),
        host_name: host_name(),
        ip_addrs: addresses(),
        mount_point: purpose.into(),
        mount_time: SystemClock.now().utc("%Y-%m-%dT%H:%M:%SZ"),
        process_id: process::id(),
        ..SessionInfo::default()
    }
}

/// The name of this machine; empty if it has none.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The addresses of this machine, but for those that mean itself or its link.
pub fn addresses() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut found = v4_addresses(&read("/proc/net/fib_trie"));
    found.extend(v6_addresses(&read("/proc/net/if_inet6")));
    found
}

/// Addresses in the routes of the kernel: a line with the address, and one that it is of this host.
fn v4_addresses(routes: &str) -> Vec<String> {
    let mut found = Vec::<String>::new();
    let mut last = None;
    for line in routes.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.filter(|address| !address.is_loopback())
            && !found.contains(&address.to_string())
        {
            found.push(address.to_string());
        }
    }
    found
}

/// Addresses as the kernel lists them: 32 digits, then numbers, the third of which is the scope.
fn v6_addresses(list: &str) -> Vec<String> {
    let global = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(2)? == "00").then(|| Ipv6Addr::from_bits(address).to_string())
    };
    list.lines().filter_map(global).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_the_kernel_lists() {
        let routes = "Main:\n  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- 192.0.2.0\n     /24 link UNICAST\n  \
                      |-- 192.0.2.2\n     /32 host LOCAL\nLocal:\n  |-- 192.0.2.2\n     /32 host LOCAL\n";
        assert_eq!(v4_addresses(routes), ["192.0.2.2"]);
        let list = "00000000000000000000000000000001 01 80 10 80 lo\nfe80000000000000fc00fffe00000001 04 40 20 80 \
                    eth0\nfd000000000000000000000000000002 04 40 00 82 eth0\n";
        assert_eq!(v6_addresses(list), ["fd00::2"]);
        assert!(v4_addresses("").is_empty() && v6_addresses("x\n").is_empty());
    }
}
