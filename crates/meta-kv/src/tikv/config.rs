//! The options of a TiKV URL: `tikv://pd1:2379,pd2:2379/prefix?option=value`.
//!
//! The same URL names the same keys for JuiceFS; options have the names of JuiceFS, with hyphens or
//! underscores.

use std::time::Duration;

use sluice_net::url;

use crate::{address::Address, stored::Result};

/// How long JuiceFS keeps old versions.
const GC_INTERVAL: Duration = Duration::from_hours(3);
/// A shorter interval would delete versions that readers use.
const SHORTEST_GC_INTERVAL: Duration = Duration::from_hours(1);

/// The addresses of the cluster and the prefix of the volume's keys.
pub(super) struct Config {
    /// The hosts are placement drivers.
    pub(super) address: Address,
    /// Files of certificates to trust, our certificate and its key, if connections are encrypted.
    pub(super) tls: Option<[String; 3]>,
    /// Age from which old versions are deleted, and how often that is done; `None` leaves it to
    /// others.
    pub(super) gc_interval: Option<Duration>,
    /// Commits under way at once.
    pub(super) lanes: usize,
}

impl Config {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it is none.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let mut address = Address::parse(url, "tikv")?;
        let tls = match ["ca", "cert", "key"].map(|name| address.option(name)) {
            [Some(ca), Some(cert), Some(key)] => Some([ca, cert, key]),
            [None, None, None] => None,
            _ => return Err(address.refused("TLS needs all three of ca, cert and key")),
        };
        let gc_interval = match address.option("gc-interval") {
            Some(text) => {
                let interval =
                    url::duration("gc-interval", &text).map_err(|reason| address.refused(reason))?;
                (!interval.is_zero()).then(|| interval.max(SHORTEST_GC_INTERVAL))
            }
            None => Some(GC_INTERVAL),
        };
        let lanes = address.lanes()?;
        // There is only one multiplexed connection to each server.
        for name in ["max-idle-conns", "max-idle-time", "max-life-time"] {
            address.option(name);
        }
        address.warn();
        Ok(Self { address, tls, gc_interval, lanes })
    }

    /// The prefix of all keys, without the byte that ends it.
    pub(super) fn prefix(&self) -> &str {
        self.address.path.trim_start_matches('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_they_are_written_for_juicefs() {
        let config = Config::parse("tikv://pd1:2379,pd2,[::1]:99/jfs/tk%31?gc_interval=30m&max-open-conns=9")
            .expect("valid");
        assert_eq!(config.address.hosts, ["pd1:2379", "pd2:2379", "[::1]:99"]);
        assert_eq!(config.prefix(), "jfs/tk1");
        assert_eq!((config.gc_interval, config.lanes), (Some(Duration::from_hours(1)), 9));
        let label = config.address.volume(config.prefix()).label;
        assert_eq!(&*label.0, "tikv://pd1:2379,pd2:2379,[::1]:99/jfs/tk1");
        let config = Config::parse("tikv://h?gc-interval=0&ca=/a&cert=/b&key=/c").expect("valid");
        assert_eq!((config.prefix(), config.gc_interval), ("", None));
        assert_eq!(config.tls, Some(["/a", "/b", "/c"].map(str::to_owned)));
        for bad in ["http://x", "tikv:///prefix", "tikv://h/p?ca=/a", "tikv://h/p?gc-interval=soon"] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
    }
}
