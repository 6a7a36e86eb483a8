//! Opens the object store that a volume's settings describe, with all layers.
//!
//! What must stay true: the order of the layers does not change. Encryption is outermost, so that a
//! retry sends the same bytes. A wait for bandwidth does not count against the deadline of a try.
//! The counters count tries. A shard is chosen by the key with its prefix.

use std::sync::Arc;

use crate::{
    config::{Encryption, Limits, StoreConfig},
    crypto::{ObjectCipher, VolumeKey},
    drivers::Driver,
    file::FileStore,
    layers::{Encrypted, Observed, Prefixed, Retry, Sharded, Stats, Throttle},
    mem::MemStore,
    missing,
    remote::Remote,
    store::{ObjectError, ObjectStore},
};

/// The store that `config` describes. Sends no request: a wrong bucket or key shows at the first
/// call, for which there is [`probe`](crate::probe).
///
/// Fails with [`ObjectError::Config`] if no such driver exists or the configuration cannot be
/// right.
pub fn open(config: &StoreConfig) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    open_observed(config, Arc::default())
}

/// [`open`], with every try counted in `stats`.
pub fn open_observed(config: &StoreConfig, stats: Arc<Stats>) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    let mut store = buckets(config)?;
    if !config.name.is_empty() {
        store = Arc::new(Prefixed::new(store, format!("{}/", config.name)));
    }
    store = Arc::new(Observed::new(store, stats));
    store = Arc::new(Retry::new(store, config.retry.clone()));
    if config.limits != Limits::default() {
        store = Arc::new(Throttle::new(store, config.limits));
    }
    if let Some(encryption) = &config.encryption {
        store = Arc::new(Encrypted::new(store, cipher(config, encryption)?));
    }
    Ok(store)
}

/// The bucket, or all of them.
fn buckets(config: &StoreConfig) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    if config.shards <= 1 {
        return bucket(config);
    }
    let refused = |reason: String| ObjectError::Config { store: config.storage.clone(), reason };
    if !config.bucket.contains("%d") {
        return Err(refused(format!(
            "with {} shards the bucket {:?} needs %d where the shard's number goes",
            config.shards, config.bucket
        )));
    }
    let shard = |n: u32| {
        bucket(&StoreConfig { bucket: config.bucket.replace("%d", &n.to_string()), ..config.clone() })
    };
    let stores = (0..config.shards).map(shard).collect::<Result<_, _>>()?;
    match Sharded::new(stores) {
        Some(sharded) => Ok(Arc::new(sharded)),
        None => Err(refused("there are no shards".into())),
    }
}

fn bucket(config: &StoreConfig) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    let name = config.storage.to_ascii_lowercase();
    match name.as_str() {
        // What users leave out is a file system path.
        "file" | "" => Ok(Arc::new(FileStore::new(config.bucket.clone(), config.sync)?)),
        "mem" => Ok(Arc::new(MemStore::new())),
        _ => match Driver::named(&name) {
            Some(driver) => Ok(Arc::new(Remote::new(driver, config)?)),
            None => Err(missing::unknown(&config.storage)),
        },
    }
}

fn cipher(config: &StoreConfig, encryption: &Encryption) -> Result<ObjectCipher, ObjectError> {
    let key = VolumeKey::from_pem(encryption.key_pem.expose(), encryption.passphrase.expose());
    let key = key
        .map_err(|error| ObjectError::Config { store: config.storage.clone(), reason: error.to_string() })?;
    Ok(ObjectCipher::new(key, encryption.cipher))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::TryStreamExt;

    use super::*;
    use crate::{config::Secret, crypto::DataCipher};

    fn config(storage: &str, bucket: &str) -> StoreConfig {
        StoreConfig {
            storage: storage.into(),
            bucket: bucket.into(),
            name: "vol".into(),
            ..StoreConfig::default()
        }
    }

    fn refusal(config: &StoreConfig) -> String {
        match open(config) {
            Err(ObjectError::Config { store, reason } | ObjectError::Denied { store, reason }) => {
                format!("{store}: {reason}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn all_layers_together_keep_an_object() {
        let directory = tempfile::tempdir().unwrap();
        let stats = Arc::new(Stats::default());
        let config = StoreConfig {
            name: "shardvol".into(),
            shards: 3,
            encryption: Some(Encryption {
                key_pem: include_str!("../tests/data/keys/pkcs8.pem").into(),
                passphrase: Secret::default(),
                cipher: DataCipher::ChaCha20Poly1305,
            }),
            limits: Limits { upload_mbps: 1000, download_mbps: 1000 },
            ..config("file", &format!("{}/bucket-%d/", directory.path().display()))
        };
        let store = open_observed(&config, Arc::clone(&stats)).unwrap();
        let body = Bytes::from(vec![3; 300_000]);
        store.put("chunks/0/0/1_0_13", body.clone()).await.unwrap();
        let path = directory.path().join("bucket-1/shardvol/chunks/0/0/1_0_13");
        let stored = std::fs::read(&path).expect("the shard that JuiceFS chooses");
        assert!(!stored.windows(9).any(|window| window == [3; 9]), "it is sealed");
        assert_eq!(store.get("chunks/0/0/1_0_13", None).await.unwrap(), body);
        assert_eq!(store.get("chunks/0/0/1_0_13", Some(7..9)).await.unwrap(), body[7..9]);
        assert!(!store.ranged());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &body).unwrap();
        store.put_file("meta/dump", file.path()).await.unwrap();
        assert_eq!(store.get("meta/dump", None).await.unwrap(), body);
        let keys: Vec<_> = store.list("chunks/").map_ok(|meta| meta.key).try_collect().await.unwrap();
        assert_eq!(keys, ["chunks/0/0/1_0_13"]);
        assert_eq!((stats.put.calls(), stats.get.calls()), (2, 3));
        store.sync().await.unwrap();
        store.put("chunks/0/0/1_0_13", body).await.unwrap();
        // A file that cannot be opened, so that a sync that reaches it fails.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        store.sync().await.unwrap_err();
        store.delete("chunks/0/0/1_0_13").await.unwrap();
        store.sync().await.unwrap();
    }

    #[test]
    fn impossible_settings_say_what_to_do() {
        assert!(refusal(&config("ftp", "x")).contains("gs, ks3, mem, minio"));
        assert!(refusal(&config("file", "relative")).contains("absolute"));
        assert!(refusal(&config("s3", "")).contains("missing"));
        assert!(refusal(&StoreConfig { shards: 2, ..config("file", "/x/") }).contains("%d"));
        let key_pem = include_str!("../tests/data/keys/pkcs8-scrypt.pem");
        let encryption = Encryption {
            key_pem: key_pem.into(),
            passphrase: Secret::default(),
            cipher: DataCipher::Aes256Gcm,
        };
        let sealed = StoreConfig { encryption: Some(encryption), ..config("mem", "") };
        assert!(refusal(&sealed).contains("JFS_RSA_PASSPHRASE"));
    }
}
