//! Network namespaces, one for each machine, and a virtual switch between them: machines that are
//! cut off, that nobody hears, or whose link is slow.
//!
//! Needs root, `ip` and `tc` (iproute2). What must stay true: the end of the test removes the
//! namespaces, and with them all links.

use std::{ffi::OsString, io, net::Ipv4Addr};

use super::Shell;

/// The upper half of the addresses for tests of networks (RFC 2544); `Namespace` has the lower one.
/// Each network takes sixteen.
const NETWORK: u32 = u32::from_be_bytes([198, 19, 0, 0]);
/// Addresses of a network.
const SIZE: u32 = 16;
/// Machines that a network may have: one address is that of the switch, two have a meaning.
pub const MACHINES: usize = SIZE as usize - 3;
/// What lets nothing through: no packet is as small as the bucket.
const NOTHING: [&str; 8] = ["root", "tbf", "rate", "8bit", "burst", "1", "limit", "1"];

/// Machines on a switch. This process is on it, too.
#[derive(Debug)]
pub struct Network {
    number: u32,
    machines: usize,
    /// Who breaks a network may have files open in a mount that waits for it.
    shell: Shell,
}

impl Network {
    /// Makes it, named after this process, with so many machines, at most [`MACHINES`].
    ///
    /// # Errors
    /// What `ip` says.
    pub fn new(machines: usize) -> io::Result<Self> {
        let number = std::process::id() % (1 << 12);
        let network = Self { number, machines: machines.min(MACHINES), shell: Shell::start()? };
        let switch = network.switch();
        network.run(&["ip", "link", "add", &switch, "type", "bridge"])?;
        network.run(&["ip", "address", "add", &format!("{}/28", network.here()), "dev", &switch])?;
        network.run(&["ip", "link", "set", &switch, "up"])?;
        for machine in 0..network.machines {
            let (name, port) = (network.name(machine), network.port(machine));
            network.run(&["ip", "netns", "add", &name])?;
            let add = ["ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name];
            network.run(&add)?;
            network.run(&["ip", "link", "set", &port, "master", &switch])?;
            network.run(&["ip", "link", "set", &port, "up"])?;
            let address = format!("{}/28", network.address(machine));
            network.run(&["ip", "-n", &name, "address", "add", &address, "dev", "eth0"])?;
            network.run(&["ip", "-n", &name, "link", "set", "eth0", "up"])?;
            network.run(&["ip", "-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    /// Machines on the switch.
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// The address of this process.
    pub fn here(&self) -> Ipv4Addr {
        Ipv4Addr::from(NETWORK + self.number * SIZE + 1)
    }

    /// The address of a machine.
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        Ipv4Addr::from(NETWORK + self.number * SIZE + 2 + machine as u32)
    }

    /// What to put before a command so that it runs on a machine, with the same mounts as here.
    pub fn enter(&self, machine: usize) -> Vec<OsString> {
        vec!["nsenter".into(), format!("--net=/run/netns/{}", self.name(machine)).into()]
    }

    /// Pulls the cable of a machine: what is sent to it and what it sends is lost, and nobody is
    /// told.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn cut(&self, machine: usize) -> io::Result<()> {
        self.run(&["ip", "link", "set", &self.port(machine), "down"])
    }

    /// Nobody hears the machine any more: what it sends is lost, and what others send arrives.
    ///
    /// # Errors
    /// What `tc` says.
    pub fn mute(&self, machine: usize) -> io::Result<()> {
        let name = self.name(machine);
        self.run(&[&["tc", "-n", &name, "qdisc", "replace", "dev", "eth0"], &NOTHING[..]].concat())
    }

    /// The machine hears nobody any more: what others send to it is lost, and what it sends
    /// arrives.
    ///
    /// # Errors
    /// What `tc` says.
    pub fn deafen(&self, machine: usize) -> io::Result<()> {
        self.run(&[&["tc", "qdisc", "replace", "dev", &self.port(machine)], &NOTHING[..]].concat())
    }

    /// What the machine sends takes long: so many bytes go out in a second.
    ///
    /// # Errors
    /// What `tc` says.
    pub fn slow(&self, machine: usize, bytes: u64) -> io::Result<()> {
        let (name, rate) = (self.name(machine), format!("{}bit", bytes * 8));
        let shape = ["root", "tbf", "rate", &rate, "burst", "32k", "latency", "400ms"];
        self.run(&[&["tc", "-n", &name, "qdisc", "replace", "dev", "eth0"], &shape[..]].concat())
    }

    /// Puts the cable in again, and lets all through as fast as it comes.
    ///
    /// # Errors
    /// What `ip` and `tc` say.
    pub fn heal(&self, machine: usize) -> io::Result<()> {
        self.run(&["ip", "link", "set", &self.port(machine), "up"])?;
        let (name, port) = (self.name(machine), self.port(machine));
        for end in [&["-n", &name, "dev", "eth0"][..], &["dev", &port]] {
            let (netns, dev) = end.split_at(end.len() - 2);
            let words = |what: &'static str| [&["tc"], netns, &["qdisc", what], dev, &["root"]].concat();
            if self.shell.run(&words("show"))?.contains("tbf") {
                self.run(&words("delete"))?;
            }
        }
        Ok(())
    }

    /// Runs a command on this side, also while files are open in a mount that hangs.
    ///
    /// # Errors
    /// What it says, if it fails.
    pub fn run_here(&self, words: &[&str]) -> io::Result<String> {
        self.shell.run(words)
    }

    fn switch(&self) -> String {
        format!("slsw{}", self.number)
    }

    fn port(&self, machine: usize) -> String {
        format!("slsw{}p{machine}", self.number)
    }

    fn name(&self, machine: usize) -> String {
        format!("sluice-{}-{machine}", self.number)
    }

    fn run(&self, words: &[&str]) -> io::Result<()> {
        let done = self.shell.run(words);
        done.map(drop).map_err(|error| io::Error::other(format!("{error} (it needs root)")))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 0..self.machines {
            let _ = self.run(&["ip", "link", "delete", &self.port(machine)]);
            let _ = self.run(&["ip", "netns", "delete", &self.name(machine)]);
        }
        let _ = self.run(&["ip", "link", "delete", &self.switch()]);
    }
}
