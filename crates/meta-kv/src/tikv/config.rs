//! What a TiKV URL says: `tikv://pd1:2379,pd2:2379/prefix?option=value`.
//!
//! The same URL names the same keys for JuiceFS; options have the names that JuiceFS gives them,
//! with hyphens or underscores.

use std::{path::PathBuf, time::Duration};

use sluice_meta::engine::EngineError;

use crate::address::{self, Address};

/// Where the cluster is and what the volume's keys begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Placement drivers, `host:port`.
    pub(super) endpoints: Vec<String>,
    /// What all keys begin with, before the byte that ends it.
    pub(super) prefix: String,
    /// Certificates, if connections are encrypted.
    pub(super) tls: Option<Tls>,
    /// How old versions must be to be given up, and how often that is done; `None` leaves it to
    /// others.
    pub(super) gc_interval: Option<Duration>,
    /// Commits under way at once.
    pub(super) lanes: usize,
}

/// Files in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// Certificates to trust.
    pub(super) ca: PathBuf,
    /// Our certificate.
    pub(super) cert: PathBuf,
    /// Its key.
    pub(super) key: PathBuf,
}

/// What JuiceFS keeps of old versions.
const GC_INTERVAL: Duration = Duration::from_hours(3);
/// Shorter would take versions from readers.
const SHORTEST_GC_INTERVAL: Duration = Duration::from_hours(1);
/// Commits under way at once if the URL does not say. One gathers what waits meanwhile; several
/// meet at the directories they change and tear the batches apart (files in one directory: 5,300/s
/// with 1, 2,750 with 2, 1,580 with 4).
const LANES: usize = 1;

impl Config {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if it is none.
    pub(super) fn parse(url: &str) -> Result<Self, EngineError> {
        let address = Address::parse(url, "tikv", 2379)?;
        let mut config = Self {
            endpoints: address.hosts,
            prefix: address.path.trim_start_matches('/').into(),
            tls: None,
            gc_interval: Some(GC_INTERVAL),
            lanes: LANES,
        };
        let mut files = Tls::default();
        for (name, value) in address.options {
            config.set(&mut files, &name, &value)?;
        }
        let given = [&files.ca, &files.cert, &files.key].map(|file| !file.as_os_str().is_empty());
        config.tls = match given {
            [true, true, true] => Some(files),
            [false, false, false] => None,
            _ => return Err(refused("TLS needs all three of ca, cert and key".into())),
        };
        Ok(config)
    }

    fn set(&mut self, files: &mut Tls, name: &str, value: &str) -> Result<(), EngineError> {
        match name {
            "ca" => files.ca = value.into(),
            "cert" => files.cert = value.into(),
            "key" => files.key = value.into(),
            "gc-interval" => {
                let interval = duration(value)?;
                self.gc_interval = (!interval.is_zero()).then(|| interval.max(SHORTEST_GC_INTERVAL));
            }
            // Commits that meet each other gain nothing from more.
            "max-open-conns" => self.lanes = address::lanes(name, value, LANES).map_err(refused)?,
            // One multiplexed connection to each server is all there is to pool.
            "max-idle-conns" | "max-idle-time" | "max-life-time" => {}
            _ => tracing::warn!(option = name, "this option of the TiKV URL has no effect"),
        }
        Ok(())
    }

    /// The address for messages.
    pub(super) fn label(&self) -> String {
        format!("tikv://{}/{}", self.endpoints.join(","), self.prefix)
    }
}

fn refused(reason: String) -> EngineError {
    address::refused("tikv", reason)
}

/// Reads `3h`, `90m`, `1h30m`, or `0`.
fn duration(text: &str) -> Result<Duration, EngineError> {
    let wrong = || refused(format!("\"{text}\" is no duration for gc-interval; write 3h or 90m"));
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let seconds = match &rest[digits..unit] {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(wrong()),
        };
        total += Duration::from_secs(value.saturating_mul(seconds));
        rest = &rest[unit..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_they_are_written_for_juicefs() {
        let config = Config::parse("tikv://pd1:2379,pd2,[::1]:99/jfs/tk%31?gc_interval=30m&max-open-conns=9")
            .expect("valid");
        assert_eq!(config.endpoints, ["pd1:2379", "pd2:2379", "[::1]:99"]);
        assert_eq!(config.prefix, "jfs/tk1");
        assert_eq!((config.gc_interval, config.lanes), (Some(Duration::from_hours(1)), 9));
        assert_eq!(config.label(), "tikv://pd1:2379,pd2:2379,[::1]:99/jfs/tk1");
        let config = Config::parse("tikv://h?gc-interval=0&ca=/a&cert=/b&key=/c").expect("valid");
        assert_eq!((config.prefix.as_str(), config.gc_interval), ("", None));
        assert_eq!(config.tls, Some(Tls { ca: "/a".into(), cert: "/b".into(), key: "/c".into() }));
        for bad in ["http://x", "tikv:///prefix", "tikv://h/p?ca=/a", "tikv://h/p?gc-interval=soon"] {
            assert!(Config::parse(bad).is_err(), "{bad}");
        }
    }
}
