//! Options of a volume, by the names and in the units of `JuiceFS`' SDK.
//!
//! What must stay true: a value that is wrong is refused. Unknown names are ignored here; Java
//! reports them.

use std::{path::PathBuf, time::Duration};

use sluice_open::VolumeOptions;

use crate::failure::{Answer, Failure};

/// The options that names and values say.
pub(crate) fn parse<'t>(pairs: impl Iterator<Item = (&'t str, &'t str)>) -> Answer<VolumeOptions> {
    let mut options = VolumeOptions { purpose: "hadoop".into(), ..VolumeOptions::default() };
    for (name, value) in pairs.filter(|(_, value)| !value.is_empty()) {
        let wrong = |takes: &str| Failure::new(libc::EINVAL, format!("{name} = {value}: it takes {takes}"));
        let yes = || match value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong("true or false")),
        };
        let number = || value.parse().map_err(|_| wrong("a number"));
        let mib = || bytes(value).ok_or_else(|| wrong("a number of MiB, or a size such as 512M or 4G"));
        let seconds = || duration(value).ok_or_else(|| wrong("a number of seconds, or a time such as 500ms"));
        match name {
            "read-only" => options.read_only = yes()?,
            "no-bgjob" => options.cleaning = !yes()?,
            "writeback" => options.writeback = yes()?,
            "subdir" => options.subdir = value.into(),
            "bucket" => options.bucket = value.into(),
            "cache-group" => options.cache_group = value.into(),
            "heartbeat" => options.heartbeat = seconds()?,
            "open-cache" => options.open_ttl = seconds()?,
            "memory-size" => options.buffer_size = mib()?,
            "max-readahead" => options.max_readahead = mib()?,
            "cache-size" => options.cache_size = mib()?,
            "prefetch" => options.prefetch = number()?,
            "max-uploads" => options.max_uploads = number()?.max(1),
            "max-downloads" => options.max_downloads = number()?.max(1),
            "cache-dir" if value != "memory" => {
                options.cache_dirs = value.split([':', ',']).map(PathBuf::from).collect();
            }
            _ => {}
        }
    }
    Ok(options)
}

/// A size in MiB, or with a unit.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" => 10,
        "" | "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
    Some((number * (1_u64 << shift) as f64) as u64)
}

/// A time in seconds, or with a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&'static str, &'static str)]) -> Answer<VolumeOptions> {
        parse(pairs.iter().copied())
    }

    #[test]
    fn values_have_the_units_of_the_other_sdk() {
        let options = parsed(&[
            ("memory-size", "300"),
            ("cache-size", "4G"),
            ("open-cache", "0.5"),
            ("heartbeat", "12"),
            ("cache-dir", "/a:/b"),
            ("no-bgjob", "true"),
            ("unheard-of", "1"),
            ("bucket", ""),
            ("cache-group", "train"),
        ]);
        let options = options.expect("valid");
        assert_eq!((options.buffer_size, options.cache_size), (300 << 20, 4 << 30));
        assert_eq!(options.open_ttl, Duration::from_millis(500));
        assert_eq!(options.heartbeat, Duration::from_secs(12));
        assert_eq!(options.cache_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert!(!options.cleaning && options.bucket.is_empty());
        assert_eq!(options.cache_group, "train");
        let memory = parsed(&[("cache-dir", "memory"), ("memory-size", "64MiB")]).expect("valid");
        assert!(memory.cache_dirs.is_empty() && memory.buffer_size == 64 << 20);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for wrong in [("read-only", "yes"), ("prefetch", "-1"), ("cache-size", "1X"), ("heartbeat", "soon")] {
            assert!(parsed(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
