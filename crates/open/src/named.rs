//! Options by their names, for programs whose users write them as text.
//!
//! What must stay true: a name that is not known is an error. Names are those of the mount; hyphens
//! and underscores mean the same.

use std::{path::PathBuf, time::Duration};

use sluice_types::{parse_duration, parse_size};

use crate::{
    error::{OpenError, Result},
    volume::VolumeOptions,
};

const MIB: u64 = 1 << 20;

impl VolumeOptions {
    /// Sets one option from text, and says whether there is one of this name. Sizes are in MiB
    /// unless they have a suffix, times in seconds.
    ///
    /// | name | what |
    /// |---|---|
    /// | `purpose` | what other clients see in place of a mount point |
    /// | `read-only`, `no-bgjob`, `writeback` | `true` or `false` |
    /// | `subdir`, `bucket`, `cache-group` | as the fields |
    /// | `heartbeat`, `open-cache` | times |
    /// | `buffer-size`, `max-readahead`, `cache-size` | sizes |
    /// | `prefetch`, `max-uploads`, `max-downloads` | numbers |
    /// | `cache-dir` | directories, separated by colons, or `memory` |
    ///
    /// # Errors
    /// The text has not the form that the option wants.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool> {
        let wrong = |takes: &str| OpenError::Invalid(format!("{name}={text}: it takes {takes}"));
        let flag = || parse_flag(text).ok_or_else(|| wrong("true or false"));
        let size = || parse_size(text, MIB).ok_or_else(|| wrong("a size such as 300M"));
        let time = || parse_duration(text).ok_or_else(|| wrong("a time such as 10s"));
        let count = || text.parse::<usize>().map_err(|_| wrong("a number"));
        match name.replace('_', "-").as_str() {
            "purpose" => text.clone_into(&mut self.purpose),
            "subdir" => text.clone_into(&mut self.subdir),
            "bucket" => text.clone_into(&mut self.bucket),
            "cache-group" => text.clone_into(&mut self.cache_group),
            "read-only" => self.read_only = flag()?,
            "no-bgjob" => self.cleaning = !flag()?,
            "writeback" => self.writeback = flag()?,
            "heartbeat" => self.heartbeat = time()?.max(Duration::from_secs(1)),
            "open-cache" => self.open_ttl = time()?,
            "buffer-size" => self.buffer_size = size()?,
            "max-readahead" => self.max_readahead = size()?,
            "cache-size" => self.cache_size = size()?,
            "prefetch" => self.prefetch = count()?,
            "max-uploads" => self.max_uploads = count()?.max(1),
            "max-downloads" => self.max_downloads = count()?.max(1),
            "cache-dir" => {
                let dirs = text.split(':').filter(|dir| !matches!(*dir, "" | "memory"));
                self.cache_dirs = dirs.map(PathBuf::from).collect();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What a text says of an option that is on or off.
pub fn parse_flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" | "" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_names_and_units_of_the_mount() {
        let mut options = VolumeOptions::default();
        let all = [
            ("read_only", "true"),
            ("no-bgjob", "1"),
            ("buffer-size", "100"),
            ("cache_size", "1G"),
            ("open-cache", "1.5s"),
            ("cache-dir", "/a:/b"),
            ("max-uploads", "0"),
        ];
        for (name, text) in all {
            assert!(options.set(name, text).unwrap(), "{name}");
        }
        let expected = VolumeOptions {
            read_only: true,
            cleaning: false,
            buffer_size: 100 << 20,
            cache_size: 1 << 30,
            open_ttl: Duration::from_millis(1500),
            cache_dirs: vec!["/a".into(), "/b".into()],
            max_uploads: 1,
            ..VolumeOptions::default()
        };
        assert_eq!(options, expected);
        options.set("cache-dir", "memory").unwrap();
        assert_eq!(options.cache_dirs, Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_not_known_is_not_guessed_at() {
        let mut options = VolumeOptions::default();
        assert!(!options.set("cachesize", "1").unwrap());
        for (name, text) in
            [("read-only", "maybe"), ("prefetch", "-1"), ("heartbeat", "soon"), ("cache-size", "x")]
        {
            let error = options.set(name, text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}={text}: it takes ")), "{error}");
        }
    }
}
