//! The configuration of a volume's object store.
//!
//! What must stay true: no secret appears in a log or a message; [`Secret`] prints itself as `***`.

use std::{fmt, time::Duration};

use crate::crypto::DataCipher;

/// Text that must not be shown: keys, tokens, passphrases.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "***" })
    }
}

/// Where a volume's objects are and how to reach them: the object part of its `setting` record,
/// decrypted, combined with the flags.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Driver, by the name that `JuiceFS` gives it: `s3`, `file`, …
    pub storage: String,
    /// Bucket as users write it: an endpoint URL, or a directory. With shards, `%d` stands for the
    /// shard's number.
    pub bucket: String,
    /// Access key, empty if the environment provides one.
    pub access_key: String,
    /// Secret key.
    pub secret_key: Secret,
    /// Token of temporary credentials.
    pub session_token: Secret,
    /// Region of the bucket if its address does not contain it (`AWS_REGION`); empty for the
    /// driver's default.
    pub region: String,
    /// Storage class of new objects, empty for the bucket's default.
    pub storage_class: String,
    /// Volume name: keys start with `<name>/`. Empty for no prefix.
    pub name: String,
    /// The number of buckets over which objects are spread; 0 and 1 mean one.
    pub shards: u32,
    /// Encryption at rest, if the volume has it.
    pub encryption: Option<Encryption>,
    /// Whether a put into `file` storage waits for the disk. `JuiceFS` does not; other drivers
    /// ignore it.
    pub sync: bool,
    /// Retries and time limits.
    pub retry: RetryPolicy,
    /// Bandwidth limits.
    pub limits: Limits,
}

/// The volume's private key, which wraps the key of each object.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The RSA private key as PEM, possibly encrypted.
    pub key_pem: Secret,
    /// The passphrase of the PEM; empty if it is not encrypted.
    pub passphrase: Secret,
    /// Cipher of the objects.
    pub cipher: DataCipher,
}

/// How long to wait for a store, and how often to retry.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Tries in all; 0 for as many as fit in `give_up`.
    pub attempts: u32,
    /// Time after which a call fails, tries included.
    pub give_up: Duration,
    /// Time for one try to read, head or list a page.
    pub get_timeout: Duration,
    /// Time for one try to write or delete.
    pub put_timeout: Duration,
    /// First pause between tries; it doubles up to `max_pause`, less a random part.
    pub first_pause: Duration,
    /// Longest pause between tries.
    pub max_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 0,
            give_up: Duration::from_mins(5),
            get_timeout: Duration::from_mins(1),
            put_timeout: Duration::from_mins(1),
            first_pause: Duration::from_millis(100),
            max_pause: Duration::from_secs(10),
        }
    }
}

/// Bandwidth limits as users state them, in megabits per second (10^6 bits); 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// To the store.
    pub upload_mbps: u64,
    /// From the store.
    pub download_mbps: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let config =
            StoreConfig { secret_key: "hunter2".into(), session_token: "tok3n".into(), ..Default::default() };
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("tok3n") && shown.contains("***"), "{shown}");
    }
}
