//! Versions of clients in the settings of a volume: `major[.minor[.patch]][-pre][+build]`.

use std::{cmp::Ordering, str::FromStr};

use anyhow::{Context, Result};

/// A version. Its build does not count; a pre-release comes before its release, pre-releases
/// compare as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientVersion {
    numbers: [u64; 3],
    pre: String,
}

impl FromStr for ClientVersion {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let version = text.split('+').next().unwrap_or_default();
        let (release, pre) = version.split_once('-').unwrap_or((version, ""));
        let mut numbers = [0; 3];
        let mut parts = release.split('.');
        for (at, number) in numbers.iter_mut().enumerate() {
            match parts.next() {
                Some(part) => {
                    *number = part.parse().with_context(|| format!("{text} is no version such as 1.2.0"))?;
                }
                None if at > 0 => break,
                None => {}
            }
        }
        anyhow::ensure!(parts.next().is_none(), "{text} is no version such as 1.2.0");
        Ok(Self { numbers, pre: pre.to_owned() })
    }
}

impl Ord for ClientVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let releases = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers.cmp(&other.numbers).then(releases).then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for ClientVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Raises the oldest version that may use a volume to `wanted`, unless it is newer already.
pub(crate) fn raise(oldest: &mut String, wanted: &str) -> Result<()> {
    if oldest.is_empty() || oldest.parse::<ClientVersion>()? < wanted.parse()? {
        wanted.clone_into(oldest);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_clients_order_them() -> Result<()> {
        let rising = ["0.9", "1", "1.1.0-A", "1.1.0-beta", "1.1.0", "1.2.0-A", "1.10.0", "99.0.0"];
        for pair in rising.windows(2) {
            assert!(pair[0].parse::<ClientVersion>()? < pair[1].parse()?, "{pair:?}");
        }
        assert_eq!("1.1".parse::<ClientVersion>()?, "1.1.0+build".parse()?);
        for wrong in ["", "a", "1.x", "1.2.3.4"] {
            assert!(wrong.parse::<ClientVersion>().is_err(), "{wrong}");
        }
        Ok(())
    }
}
