//! `sluice format`: makes a volume.

use std::{env, fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use sluice_meta::{
    Meta,
    schema::{Tier, VolumeFormat},
};
use sluice_types::{Clock, SystemClock};

use crate::{engines, sizes, volume};

/// Make a volume
#[derive(Args)]
pub(crate) struct Format {
    /// Metadata engine: sqlite3://FILE, redis://HOST:PORT/DB, rediss://, unix://SOCKET?db=N
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Name of the volume: lower-case letters, digits and dashes
    name: String,
    /// Object storage driver
    #[arg(long, default_value = "file")]
    storage: String,
    /// Bucket: an endpoint URL, or a directory [default: /var/jfs, or ~/.juicefs/local for users]
    #[arg(long)]
    bucket: Option<String>,
    /// Access key of the object storage
    #[arg(long, env = "ACCESS_KEY", default_value = "", hide_env_values = true)]
    access_key: String,
    /// Secret key of the object storage
    #[arg(long, env = "SECRET_KEY", default_value = "", hide_env_values = true)]
    secret_key: String,
    /// Session token of the object storage
    #[arg(long, env = "SESSION_TOKEN", default_value = "", hide_env_values = true)]
    session_token: String,
    /// Default storage class
    #[arg(long, default_value = "")]
    storage_class: String,
    /// Size of a block: 64K to 16M, a power of two
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = sizes::kib)]
    block_size: u64,
    /// Compression of blocks: none, lz4 or zstd
    #[arg(long, default_value = "none", value_parser = ["none", "lz4", "zstd"])]
    compress: String,
    /// File with the RSA private key (PEM) that encryption of the data starts from
    #[arg(long)]
    encrypt_rsa_key: Option<PathBuf>,
    /// Cipher of the data
    #[arg(long, default_value = "aes256gcm-rsa")]
    encrypt_algo: String,
    /// Begin object names with a hash
    #[arg(long)]
    hash_prefix: bool,
    /// Spread objects over this many buckets; the bucket's name holds a %d
    #[arg(long, default_value_t = 0)]
    shards: u32,
    /// Limit of the volume, 0 for none; a bare number is GiB
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = sizes::gib)]
    capacity: u64,
    /// Limit of inodes, 0 for none
    #[arg(long, default_value_t = 0)]
    inodes: u64,
    /// Days that deleted files stay in the trash, 0 for no trash
    #[arg(long, default_value_t = 1)]
    trash_days: i64,
    /// POSIX ACLs; they cannot be switched off again
    #[arg(long)]
    enable_acl: bool,
    /// Replace the settings of an existing volume, even those that are fixed
    #[arg(long)]
    force: bool,
    /// Leave an existing volume as it is
    #[arg(long)]
    no_update: bool,
}

impl Format {
    pub(crate) fn run(self) -> Result<ExitCode> {
        check_name(&self.name)?;
        let engine = engines::open(&self.meta_url)?;
        let existing = Meta::load_format(engine.as_ref())?;
        if existing.is_some() && self.no_update {
            return Ok(ExitCode::SUCCESS);
        }
        existing.as_ref().map_or(Ok(()), VolumeFormat::check)?;
        let format = self.settings(existing.as_ref())?;
        self.probe(&format, existing.is_none())?;
        Meta::format(engine.as_ref(), &format, SystemClock.now())?;
        println!("{}", format.masked().to_json());
        tracing::info!("volume {} is ready", format.name);
        Ok(ExitCode::SUCCESS)
    }

    /// The settings that the arguments ask for.
    fn settings(&self, existing: Option<&VolumeFormat>) -> Result<VolumeFormat> {
        let mut format = existing.cloned().unwrap_or_else(|| VolumeFormat {
            uuid: volume::new_uuid(),
            tiers: [("0".to_owned(), Tier::default())].into(),
            meta_version: 1,
            min_client_version: "1.1.0-A".into(),
            dir_stats: true,
            encrypt_algo: self.encrypt_algo.clone(),
            ..VolumeFormat::default()
        });
        format.name.clone_from(&self.name);
        format.storage.clone_from(&self.storage);
        format.bucket = self.bucket()?;
        format.access_key.clone_from(&self.access_key);
        format.storage_class.clone_from(&self.storage_class);
        format.capacity = self.capacity;
        format.inodes = self.inodes;
        format.trash_days = self.trash_days;
        if self.enable_acl {
            format.enable_acl = true;
            format.min_client_version = "1.2.0-A".into();
        }
        if existing.is_none() || self.force {
            format.block_size = block_size(self.block_size);
            format.compression.clone_from(&self.compress);
            format.shards = self.shards;
            format.hash_prefix = self.hash_prefix;
            if let Some(path) = &self.encrypt_rsa_key {
                let pem =
                    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                format.encrypt_key = pem;
            }
        }
        self.seal(&mut format)?;
        Ok(format)
    }

    /// Puts the secrets in their stored form.
    fn seal(&self, format: &mut VolumeFormat) -> Result<()> {
        let uuid = format.uuid.clone();
        let seal = |secret: &str| -> Result<String> {
            if secret.is_empty() {
                Ok(String::new())
            } else {
                Ok(sluice_object::crypto::seal_secret(&uuid, secret)?)
            }
        };
        format.secret_key = seal(&self.secret_key)?;
        format.session_token = seal(&self.session_token)?;
        if format.encrypt_key.starts_with("-----") {
            format.encrypt_key = seal(&format.encrypt_key)?;
        }
        format.key_encrypted = !(format.secret_key.is_empty()
            && format.session_token.is_empty()
            && format.encrypt_key.is_empty());
        Ok(())
    }

    /// The bucket, or the directory that stands for one by default.
    fn bucket(&self) -> Result<String> {
        match &self.bucket {
            Some(bucket) => volume::bucket_of(&self.storage, bucket),
            None if self.storage != "file" => bail!("storage {} needs a --bucket", self.storage),
            None if rustix::process::geteuid().is_root() => Ok("/var/jfs/".into()),
            None => {
                let home = env::var("HOME").context("HOME is not set; give a --bucket")?;
                volume::bucket_of("file", &format!("{home}/.juicefs/local"))
            }
        }
    }

    /// Tries the object store before anything is written to the database.
    fn probe(&self, format: &VolumeFormat, new: bool) -> Result<()> {
        let store = volume::open_store(format)?;
        volume::runtime()?.block_on(async {
            sluice_object::probe(store.as_ref())
                .await
                .with_context(|| format!("{} does not work", store.describe()))?;
            if new && !self.force {
                sluice_object::ensure_empty(store.as_ref()).await?;
            }
            let uuid = format.uuid.clone().into_bytes();
            if new && let Err(error) = store.put("juicefs_uuid", uuid.into()).await {
                tracing::warn!(%error, "the volume's UUID could not be stored beside its objects");
            }
            Ok(())
        })
    }
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edges = !name.starts_with('-') && !name.ends_with('-');
    if !(3..=63).contains(&name.len()) || !name.chars().all(allowed) || !edges {
        bail!(
            "{name} is no name for a volume: 3 to 63 lower-case letters, digits and dashes, no dash first or last"
        );
    }
    Ok(())
}

/// Block size in KiB: rounded down to a power of two, between 64 and 16384.
fn block_size(bytes: u64) -> u32 {
    let kib = (bytes >> 10).clamp(64, 16384) as u32;
    1 << kib.ilog2()
}
