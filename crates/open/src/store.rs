//! The object store and the data path of a volume, as its settings say.

use sluice_data::{DataConfig, Layout};
use sluice_meta::schema::VolumeFormat;
use sluice_object::{Compression, Encryption, Limits, Secret, StoreConfig, crypto::open_secret};

use crate::{
    error::{OpenError, Result, invalid},
    variables::Variables,
};

/// How to reach the object store of a volume: its settings, with the secrets opened. The
/// environment has the passphrase of an encryption key (`JFS_RSA_PASSPHRASE`) and the region.
///
/// # Errors
/// A secret was removed, or cannot be opened; a setting is unknown.
pub fn store_config(format: &VolumeFormat, variables: Variables<'_>) -> Result<StoreConfig> {
    let open = |what: &'static str, stored: &str| -> Result<Secret> {
        if stored == "removed" {
            return invalid(format!(
                "the volume's {what} was removed by a dump; set it again with `sluice config`"
            ));
        }
        if stored.is_empty() || !format.key_encrypted {
            return Ok(stored.to_owned().into());
        }
        let opened = open_secret(&format.uuid, stored);
        Ok(opened.map_err(|error| OpenError::Secret(what, error))?.into())
    };
    let key_pem = open("encryption key", &format.encrypt_key)?;
    let encryption = if key_pem.is_empty() {
        None
    } else {
        let cipher = format.encrypt_algo.parse();
        let cipher = cipher.map_err(|error| OpenError::Invalid(format!("{error}")))?;
        let passphrase = variables("JFS_RSA_PASSPHRASE").unwrap_or_default().into();
        Some(Encryption { key_pem, passphrase, cipher })
    };
    Ok(StoreConfig {
        storage: format.storage.clone(),
        bucket: format.bucket.clone(),
        access_key: format.access_key.clone(),
        secret_key: open("secret key", &format.secret_key)?,
        session_token: open("session token", &format.session_token)?,
        storage_class: storage_class(format),
        name: format.name.clone(),
        shards: format.shards,
        encryption,
        region: region(variables),
        limits: Limits {
            upload_mbps: format.upload_limit.max(0) as u64,
            download_mbps: format.download_limit.max(0) as u64,
        },
        ..StoreConfig::default()
    })
}

/// Region of a bucket whose address does not contain it; empty if the environment names none.
pub fn region(variables: Variables<'_>) -> String {
    variables("AWS_REGION").or_else(|| variables("AWS_DEFAULT_REGION")).unwrap_or_default()
}

/// The data path with the settings of a volume, otherwise the default.
///
/// # Errors
/// A setting is unknown or out of range.
pub fn data_config(format: &VolumeFormat) -> Result<DataConfig> {
    Ok(DataConfig {
        volume: format.uuid.clone(),
        block_size: layout(format)?.block_size,
        hash_prefix: format.hash_prefix,
        compression: format
            .compression
            .parse::<Compression>()
            .map_err(|error| OpenError::Invalid(error.to_string()))?,
        ..DataConfig::default()
    })
}

/// How objects are named and divided into blocks in a volume.
///
/// # Errors
/// If its block size cannot be.
pub fn layout(format: &VolumeFormat) -> Result<Layout> {
    if format.block_size == 0 {
        return invalid("the volume's block size is 0");
    }
    let Some(block_size) = format.block_size.checked_mul(1024) else {
        return invalid("the volume's block size is out of range");
    };
    Ok(Layout { block_size, hash_prefix: format.hash_prefix })
}

/// Storage class of what is written: that of the first tier, or the old member where there are no
/// tiers.
fn storage_class(format: &VolumeFormat) -> String {
    format.tiers.get("0").map_or_else(|| format.storage_class.clone(), |tier| tier.storage_class.clone())
}
