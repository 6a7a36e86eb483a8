//! The volume's settings: one JSON object, with the member names of the volume format.
//!
//! Members that this version does not know are kept when it rewrites the record. Secrets are held
//! in the stored (sealed) form. Code that needs a secret opens it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Schema version that Sluice reads and writes.
const META_VERSION: i64 = 1;

/// Days an entry stays in the trash; 0 means no trash.
pub type TrashDays = i64;

/// A storage tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "members of the volume format")]
pub struct Tier {
    #[serde(rename = "ID")]
    pub id: u8,
    #[serde(rename = "StorageClass")]
    pub storage_class: String,
    #[serde(rename = "Tag")]
    pub tag: String,
}

/// The settings of a volume.
#[allow(clippy::struct_excessive_bools, reason = "the members of the volume format")]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeFormat {
    /// Volume name, also the prefix of its objects.
    pub name: String,
    /// Identity, UUID text.
    #[serde(rename = "UUID")]
    pub uuid: String,
    /// Object store driver.
    pub storage: String,
    /// Legacy storage class; only used when there are no tiers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_class: String,
    /// Storage tiers "0" to "3".
    #[serde(deserialize_with = "or_default")]
    pub tiers: BTreeMap<String, Tier>,
    /// Bucket or endpoint; for `file` an absolute path that ends in `/`.
    pub bucket: String,
    /// Access key, stored in clear.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// Secret key, sealed if [`Self::key_encrypted`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_key: String,
    /// Session token, sealed if [`Self::key_encrypted`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_token: String,
    /// Block size in KiB.
    pub block_size: u32,
    /// `none`, `lz4` or `zstd`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compression: String,
    /// Number of buckets if above 1.
    #[serde(skip_serializing_if = "is_default")]
    pub shards: u32,
    /// Whether object names start with a hash of the slice id.
    #[serde(skip_serializing_if = "is_default")]
    pub hash_prefix: bool,
    /// Limit in bytes, 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity: u64,
    /// Limit of inodes, 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub inodes: u64,
    /// PEM of the private key that wraps data keys, sealed if [`Self::key_encrypted`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encrypt_key: String,
    /// Cipher of the data; meaningless without a key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encrypt_algo: String,
    /// Whether the secrets above are sealed.
    #[serde(skip_serializing_if = "is_default")]
    pub key_encrypted: bool,
    /// Default upload limit of clients, Mbps, 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub upload_limit: i64,
    /// Default download limit of clients, Mbps, 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub download_limit: i64,
    /// Days in the trash.
    pub trash_days: TrashDays,
    /// Schema version.
    #[serde(skip_serializing_if = "is_default")]
    pub meta_version: i64,
    /// Oldest JuiceFS version that may open the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub min_client_version: String,
    /// Newest JuiceFS version that may open the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub max_client_version: String,
    /// Whether usage per directory is kept.
    #[serde(skip_serializing_if = "is_default")]
    pub dir_stats: bool,
    /// Whether usage per user and group is kept.
    #[serde(skip_serializing_if = "is_default")]
    pub user_group_quota: bool,
    /// Whether POSIX ACLs are in use; cannot be switched off again.
    #[serde(rename = "EnableACL")]
    pub enable_acl: bool,
    /// Whether operations are logged in the engine.
    #[serde(skip_serializing_if = "is_default")]
    pub change_log: bool,
    /// Seconds that a line of the change log is kept, 0 for ever.
    #[serde(skip_serializing_if = "is_default")]
    pub change_log_max_age: i64,
    /// Lines of the change log that are kept, 0 for all.
    #[serde(skip_serializing_if = "is_default")]
    pub change_log_max_lines: i64,
    /// Everything this version does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Default for VolumeFormat {
    fn default() -> Self {
        Self {
            name: String::new(),
            uuid: String::new(),
            storage: "file".into(),
            storage_class: String::new(),
            tiers: BTreeMap::new(),
            bucket: String::new(),
            access_key: String::new(),
            secret_key: String::new(),
            session_token: String::new(),
            block_size: 4096,
            compression: "none".into(),
            shards: 0,
            hash_prefix: false,
            capacity: 0,
            inodes: 0,
            encrypt_key: String::new(),
            encrypt_algo: String::new(),
            key_encrypted: false,
            upload_limit: 0,
            download_limit: 0,
            trash_days: 0,
            meta_version: 0,
            min_client_version: String::new(),
            max_client_version: String::new(),
            dir_stats: false,
            user_group_quota: false,
            enable_acl: false,
            change_log: false,
            change_log_max_age: 0,
            change_log_max_lines: 0,
            unknown: Map::new(),
        }
    }
}

/// Why a stored `setting` cannot be used.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    /// No JSON object of the right types.
    #[error("the setting record is damaged ({0}); restore it from a dump of the metadata")]
    Damaged(String),
    /// A schema that only newer clients know.
    #[error(
        "the volume has metadata version {0}, this client knows up to {META_VERSION}; use a newer client"
    )]
    TooNew(i64),
    /// A member has a value this client cannot serve.
    #[error("the volume's {member} is \"{value}\", which this client does not know; use a newer client")]
    Unknown {
        /// Name of the member.
        member: &'static str,
        /// Its value.
        value: String,
    },
}

impl VolumeFormat {
    /// Reads the stored JSON without judging it.
    pub fn parse(json: &[u8]) -> Result<Self, FormatError> {
        serde_json::from_slice(json).map_err(|error| FormatError::Damaged(error.to_string()))
    }

    /// The JSON to store.
    pub fn to_json(&self) -> String {
        // A struct of strings, numbers and string-keyed maps always serialises.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Whether this client may open the volume at all.
    pub fn check(&self) -> Result<(), FormatError> {
        if self.meta_version > META_VERSION {
            return Err(FormatError::TooNew(self.meta_version));
        }
        let compression = self.compression.to_ascii_lowercase();
        if !matches!(compression.as_str(), "" | "none" | "lz4" | "zstd") {
            return Err(FormatError::Unknown { member: "Compression", value: self.compression.clone() });
        }
        Ok(())
    }

    /// A copy whose secrets are replaced by `removed`, fit to be shown.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        for secret in [&mut shown.secret_key, &mut shown.session_token, &mut shown.encrypt_key] {
            if !secret.is_empty() {
                *secret = "removed".into();
            }
        }
        shown
    }
}

impl fmt::Debug for VolumeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked().to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_members_survive_and_secrets_do_not_show() {
        let json = br#"{"Name":"a","UUID":"u","Storage":"file","Bucket":"/b/","SecretKey":"hush","BlockSize":64,
                        "Tiers":null,"TrashDays":1,"MetaVersion":1,"EnableACL":false,"FromTheFuture":{"x":1}}"#;
        let format = VolumeFormat::parse(json).expect("valid");
        let again: Value = serde_json::from_str(&format.to_json()).expect("valid");
        assert_eq!(again["FromTheFuture"]["x"], 1);
        assert_eq!(again["SecretKey"], "hush");
        assert!(!format!("{format:?}").contains("hush"));
        assert!(VolumeFormat::parse(br#"{"Name":1}"#).is_err());
        assert_eq!(VolumeFormat { meta_version: 2, ..format }.check(), Err(FormatError::TooNew(2)));
    }
}
