//! A network namespace for one client, and a virtual link to it, which can be cut.
//!
//! Needs root and `ip` (iproute2). What must stay true: the end of the test removes the namespace,
//! and with it both ends of the link.

use std::{ffi::OsString, io, net::Ipv4Addr};

use super::Shell;

/// Addresses for tests of networks: RFC 2544. Each namespace takes four of the 2^16 of
/// 198.18.0.0/16.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// A network namespace with a cable to this one.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    cable: String,
    here: Ipv4Addr,
    /// Whoever pulls a cable may have files open in a mount that waits for it.
    shell: Shell,
}

impl Namespace {
    /// Makes it, named after this process.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn new() -> io::Result<Self> {
        let number = std::process::id() % (1 << 14);
        let (name, cable) = (format!("sluice-{number}"), format!("sluice-{number}"));
        let [here, there] = [1, 2].map(|host| Ipv4Addr::from(NETWORK + number * 4 + host));
        let namespace = Self { name, cable, here, shell: Shell::start()? };
        let Self { name, cable, .. } = &namespace;
        let ip = |words: &[&str]| namespace.ip(words);
        ip(&["netns", "add", name])?;
        ip(&["link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name])?;
        ip(&["address", "add", &format!("{here}/30"), "dev", cable])?;
        ip(&["link", "set", cable, "up"])?;
        ip(&["-n", name, "address", "add", &format!("{there}/30"), "dev", "eth0"])?;
        ip(&["-n", name, "link", "set", "eth0", "up"])?;
        Ok(namespace)
    }

    /// The address at which those in the namespace reach this side.
    pub fn here(&self) -> Ipv4Addr {
        self.here
    }

    /// What to put before a command so that it runs in there, with the same mounts as here.
    pub fn enter(&self) -> Vec<OsString> {
        vec!["nsenter".into(), format!("--net=/run/netns/{}", self.name).into()]
    }

    /// Runs a command on this side, also while files are open in a mount that hangs.
    ///
    /// # Errors
    /// What it says, if it fails.
    pub fn run_here(&self, words: &[&str]) -> io::Result<String> {
        self.shell.run(words)
    }

    fn ip(&self, words: &[&str]) -> io::Result<()> {
        let done = self.shell.run(&[&["ip"], words].concat());
        done.map(drop).map_err(|error| io::Error::other(format!("{error} (it needs root)")))
    }

    /// Pulls the cable: what is sent is lost, and nobody is told.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn cut(&self) -> io::Result<()> {
        self.ip(&["link", "set", &self.cable, "down"])
    }

    /// Puts it in again.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn heal(&self) -> io::Result<()> {
        self.ip(&["link", "set", &self.cable, "up"])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.ip(&["link", "delete", &self.cable]);
        let _ = self.ip(&["netns", "delete", &self.name]);
    }
}
