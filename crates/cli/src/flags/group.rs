//! Flags about the cache group. They have the names of the paid edition of JuiceFS.

use std::{net::IpAddr, time::Duration};

use clap::Args;
use sluice_peer::GroupConfig;

use super::UnusedFlags;
use crate::sizes;

/// Clients that share their caches.
#[derive(Args)]
#[command(next_help_heading = "Cache group")]
pub(crate) struct GroupFlags {
    /// Share the cache with the other clients of the volume that name this group
    #[arg(long, value_name = "NAME", value_parser = sluice_open::group_name)]
    pub(crate) cache_group: Option<String>,
    /// Only take blocks from the group, and give none
    #[arg(long)]
    pub(crate) no_sharing: bool,
    /// How many blocks this client owns, in proportion to the others; 0 drains it
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) group_weight: u32,
    /// For ten minutes after joining, ask the member that owned a block before
    #[arg(long)]
    pub(crate) group_backup: bool,
    /// Give blocks to their owners as they are uploaded
    #[arg(long)]
    fill_group_cache: bool,
    /// Address that the other clients reach this one at [default: the first one of the machine]
    #[arg(long, value_name = "IP", value_parser = reachable)]
    pub(crate) group_ip: Option<IpAddr>,
    /// Port for the other clients; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) group_port: u16,
    /// Take the address of the machine that is in this network
    #[arg(long, value_name = "IP/BITS", value_parser = network, conflicts_with = "group_ip")]
    pub(crate) group_network: Option<Network>,
    /// Longest time for a block from another client; after it, the object storage is read
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sizes::duration)]
    pub(crate) remote_timeout: Duration,
    /// Do not encrypt connections between clients, for closed networks. Refused for encrypted
    /// volumes
    #[arg(long)]
    pub(crate) group_plaintext: bool,
}

/// An address at which others can reach this machine.
fn reachable(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|_| format!("{text} is no IP address"))?;
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(format!(
            "others cannot reach {ip}; name an address of this machine, or leave the flag out"
        ));
    }
    Ok(ip)
}

impl GroupFlags {
    /// The flags of clients that give blocks, and whether each is given.
    fn of_members(&self) -> [(&'static str, bool); 5] {
        [
            ("--group-weight", self.group_weight != 100),
            ("--group-backup", self.group_backup),
            ("--group-ip", self.group_ip.is_some()),
            ("--group-port", self.group_port != 0),
            ("--group-network", self.group_network.is_some()),
        ]
    }

    /// Notes what does nothing.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        if self.cache_group.is_some() {
            for (flag, given) in self.of_members() {
                if self.no_sharing && given {
                    unused.refuse(
                        flag,
                        true,
                        "a client with --no-sharing gives no blocks; leave one of both out",
                    );
                }
            }
            return;
        }
        let others = [
            ("--no-sharing", self.no_sharing),
            ("--fill-group-cache", self.fill_group_cache),
            ("--group-plaintext", self.group_plaintext),
        ];
        for (flag, given) in self.of_members().into_iter().chain(others) {
            unused.ineffective(flag, given, "--cache-group");
        }
    }

    /// Notes what does nothing in a read-only mount.
    pub(crate) fn unused_read_only(&self, unused: &mut UnusedFlags) {
        for (flag, given) in self.of_members() {
            let given = given && self.cache_group.is_some();
            unused.without_effect(flag, given, "a read-only mount gives the cache group no blocks");
        }
    }

    /// How this client uses the group; `own` is its name, if it gives blocks.
    pub(crate) fn config(&self, own: Option<String>) -> GroupConfig {
        GroupConfig {
            own,
            remote_timeout: self.remote_timeout,
            fill: self.fill_group_cache,
            ..GroupConfig::default()
        }
    }
}

/// A network: an address, and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether an address is in it.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - self.bits).unwrap_or(0) == 0;
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

fn network(text: &str) -> Result<Network, String> {
    let wrong = || format!("{text} is no network; write 10.0.0.0/8");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits = bits.parse().ok().filter(|bits| *bits <= if address.is_ipv4() { 32 } else { 128 });
    Ok(Network { address, bits: bits.ok_or_else(wrong)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let contains = |net: &str, address: &str| {
            network(net).expect(net).contains(address.parse().expect("an address"))
        };
        assert!(contains("10.1.0.0/16", "10.1.255.3") && !contains("10.1.0.0/16", "10.2.0.1"));
        assert!(contains("0.0.0.0/0", "9.9.9.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::/8", "fd12::1") && !contains("fd00::/8", "fe80::1"));
        assert!(contains("10.0.0.7/32", "10.0.0.7") && !contains("10.0.0.7/32", "10.0.0.6"));
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
