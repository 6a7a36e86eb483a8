//! The settings of a volume that the console shows.
//!
//! What must stay true: they are named one by one. A field that is added to the format is shown
//! only after it was added to the list here.

use serde::Serialize;
use sluice_meta::schema::VolumeFormat;

/// The settings of a volume.
#[allow(clippy::struct_excessive_bools, reason = "settings are switches")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) uuid: String,
    /// Object store driver.
    pub(crate) storage: String,
    /// Where the objects are, without user, password and options.
    pub(crate) bucket: String,
    pub(crate) storage_class: Option<String>,
    pub(crate) block_size_kib: u32,
    pub(crate) compression: String,
    /// The cipher; `None` if the data are not encrypted.
    pub(crate) encryption: Option<String>,
    /// Days that removed files are kept.
    pub(crate) trash_days: i64,
    pub(crate) shards: u32,
    pub(crate) hash_prefix: bool,
    pub(crate) directory_statistics: bool,
    pub(crate) user_group_quota: bool,
    pub(crate) acl: bool,
    pub(crate) change_log: bool,
    /// Mbps; 0 for no limit.
    pub(crate) upload_limit_mbps: i64,
    /// Mbps; 0 for no limit.
    pub(crate) download_limit_mbps: i64,
    pub(crate) min_client_version: Option<String>,
    pub(crate) max_client_version: Option<String>,
}

impl Settings {
    pub(crate) fn of(format: &VolumeFormat) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let class = format.tiers.get("0").map_or(&format.storage_class, |tier| &tier.storage_class);
        let cipher = if format.encrypt_algo.is_empty() { "aes256gcm-rsa" } else { &format.encrypt_algo };
        Self {
            name: format.name.clone(),
            uuid: format.uuid.clone(),
            storage: format.storage.clone(),
            bucket: without_login(&format.bucket),
            storage_class: some(class),
            block_size_kib: format.block_size,
            compression: some(&format.compression).unwrap_or_else(|| "none".into()),
            encryption: some(&format.encrypt_key).map(|_| cipher.to_owned()),
            trash_days: format.trash_days,
            shards: format.shards,
            hash_prefix: format.hash_prefix,
            directory_statistics: format.dir_stats,
            user_group_quota: format.user_group_quota,
            acl: format.enable_acl,
            change_log: format.change_log,
            upload_limit_mbps: format.upload_limit,
            download_limit_mbps: format.download_limit,
            min_client_version: some(&format.min_client_version),
            max_client_version: some(&format.max_client_version),
        }
    }
}

/// An address without what may let somebody in: all before its last `@`, and its options.
pub(crate) fn without_login(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}{place}"),
        None => format!("{scheme}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_loses_its_login_and_its_options() {
        for (given, shown) in [
            ("https://b.s3.example.com/p", "https://b.s3.example.com/p"),
            ("https://key:hush@s3.example.com/b?sig=hush", "https://s3.example.com/b"),
            ("https://key:hu@sh@s3.example.com", "https://s3.example.com"),
            ("key:hush@host:/path", "host:/path"),
            ("/var/objects/", "/var/objects/"),
        ] {
            assert_eq!(without_login(given), shown);
        }
    }

    #[test]
    fn nothing_secret_is_among_the_settings() {
        let json =
            br#"{"Name":"a","UUID":"u","Storage":"s3","Bucket":"https://hush1:hush2@h/b","AccessKey":"hush3",
            "SecretKey":"hush4","SessionToken":"hush5","EncryptKey":"hush6","BlockSize":64,"TrashDays":1,
            "MetaVersion":1,"EnableACL":false,"FromTheFuture":{"Key":"hush7"}}"#;
        let format = VolumeFormat::parse(json).expect("valid");
        let settings = Settings::of(&format);
        assert_eq!(settings.encryption.as_deref(), Some("aes256gcm-rsa"));
        let shown = serde_json::to_string(&settings).expect("valid");
        assert!(!shown.contains("hush"), "{shown}");
    }
}
