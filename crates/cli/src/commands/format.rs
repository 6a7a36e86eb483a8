//! `sluice format`: makes a volume.
//!
//! What must stay true: on a volume that exists, a setting that is not given stays as it is.

use std::{env, fs, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sluice_meta::{
    Meta,
    schema::{Tier, VolumeFormat},
};
use sluice_object::ObjectStore;
use sluice_types::{Clock, SystemClock};

use super::{
    config::{Config, changes},
    hadoop::Hadoop,
};
use crate::{engines, sizes, volume};

/// Make a volume
#[derive(Args)]
#[command(after_help = "Examples:
  sluice format sqlite3:///var/lib/vol.db myvol
  sluice format redis://localhost/1 myvol --storage s3 --bucket https://data.s3.us-east-2.amazonaws.com")]
pub(crate) struct Format {
    /// Metadata engine: sqlite3://FILE, redis://HOST:PORT/DB, rediss://, unix://SOCKET?db=N,
    /// postgres://USER@HOST:PORT/DB, mysql://USER:PASSWORD@(HOST:PORT)/DB, tikv://PD:2379/PREFIX,
    /// etcd://HOST:2379/PREFIX
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Name of the volume: lower-case letters, digits and dashes
    name: String,
    /// Object storage driver: file, s3, minio, b2, bos, cos, eos, gs, ks3, mem, obs, oos, oss,
    /// qingstor, qiniu, scw, space, tos, wasabi, wasb, webdav [default: file]
    #[arg(long)]
    storage: Option<String>,
    /// Bucket: an endpoint URL, or a directory [default: /var/jfs, or ~/.juicefs/local for users]
    #[arg(long)]
    bucket: Option<String>,
    /// Access key of the object storage
    #[arg(long, env = "ACCESS_KEY", hide_env_values = true)]
    access_key: Option<String>,
    /// Secret key of the object storage
    #[arg(long, env = "SECRET_KEY", hide_env_values = true)]
    secret_key: Option<String>,
    /// Session token of the object storage
    #[arg(long, env = "SESSION_TOKEN", hide_env_values = true)]
    session_token: Option<String>,
    /// Default storage class
    #[arg(long)]
    storage_class: Option<String>,
    #[arg(long, value_name = "KEY=VALUE", hide = true)]
    tag: Option<String>,
    /// Size of a block: 64K to 16M, a power of two; a bare number is KiB [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Option<u32>,
    /// Compression of blocks [default: none]
    #[arg(long, value_parser = ["none", "lz4", "zstd"])]
    compress: Option<String>,
    /// File with the RSA private key (PEM) that encryption of the data starts from
    #[arg(long)]
    encrypt_rsa_key: Option<PathBuf>,
    /// Cipher of the data: aes256gcm-rsa or chacha20-rsa [default: aes256gcm-rsa]
    #[arg(long)]
    encrypt_algo: Option<String>,
    /// Begin object names with a hash
    #[arg(long)]
    hash_prefix: bool,
    /// Spread objects over this many buckets; the bucket's name holds a %d [default: 0]
    #[arg(long)]
    shards: Option<u32>,
    /// Limit of the volume, 0 for none; a bare number is GiB [default: 0]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = sizes::gib)]
    capacity: Option<u64>,
    /// Limit of inodes, 0 for none [default: 0]
    #[arg(long, allow_hyphen_values = true, value_parser = sizes::number)]
    inodes: Option<u64>,
    /// Days that deleted files stay in the trash, 0 for no trash [default: 1]
    #[arg(long, allow_hyphen_values = true, value_parser = sizes::days)]
    trash_days: Option<i64>,
    /// POSIX ACLs; they cannot be switched off again
    #[arg(long)]
    enable_acl: bool,
    /// Change settings of an existing volume that are fixed otherwise; for a new one, take a bucket
    /// that is not empty
    #[arg(long)]
    force: bool,
    /// Leave an existing volume as it is
    #[arg(long)]
    no_update: bool,
    #[command(flatten)]
    hadoop: Hadoop,
}

/// Whoever formats a volume that exists may not know that it does.
fn tell_changes(existing: &VolumeFormat, format: &VolumeFormat) {
    let changes = changes(existing, format);
    if !changes.is_empty() {
        tracing::warn!("volume {} exists already; changed are {}", existing.name, changes.join(", "));
    }
    let (existing, format) = (existing.masked(), format.masked());
    if (&existing.storage, &existing.bucket) != (&format.storage, &format.bucket) {
        tracing::warn!(
            "objects are looked for in {} {} now; those of the volume must be moved there from {} {}",
            format.storage,
            format.bucket,
            existing.storage,
            existing.bucket
        );
    }
}

impl Format {
    pub(crate) fn run(self) -> Result<ExitCode> {
        check_name(&self.name)?;
        ensure!(
            self.tag.as_ref().is_none_or(String::is_empty),
            "--tag is refused: objects cannot be tagged as they are written; have a rule of the bucket tag them by \
             their prefix"
        );
        if let Some(storage) = &self.storage {
            sluice_object::check_driver(storage)?;
        }
        let engine = engines::open(&self.meta_url)?;
        let existing = Meta::load_format(engine.as_ref())?;
        if existing.is_some() && self.no_update {
            return Ok(ExitCode::SUCCESS);
        }
        existing.as_ref().map_or(Ok(()), VolumeFormat::check)?;
        let format = match &existing {
            Some(existing) => self.changed(existing)?,
            None => self.fresh()?,
        };
        let store = self.probe(&format, existing.is_none())?;
        let now = SystemClock.now();
        if let Some(existing) = &existing {
            Meta::reformat(engine.as_ref(), existing, &format, now)?;
            tell_changes(existing, &format);
        } else {
            Meta::format(engine.as_ref(), &format, now)?;
            mark(store.as_ref(), &format)?;
        }
        outln!("{}", format.masked().to_json());
        tracing::info!("volume {} is ready", format.name);
        Ok(ExitCode::SUCCESS)
    }

    /// The settings of a new volume.
    fn fresh(&self) -> Result<VolumeFormat> {
        let given = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let storage = given(&self.storage, "file");
        let mut format = VolumeFormat {
            uuid: volume::new_uuid(),
            tiers: [(
                "0".to_owned(),
                Tier { storage_class: given(&self.storage_class, ""), ..Tier::default() },
            )]
            .into(),
            meta_version: 1,
            min_client_version: if self.enable_acl { "1.2.0-A" } else { "1.1.0-A" }.into(),
            dir_stats: true,
            name: self.name.clone(),
            bucket: self.bucket(&storage)?,
            storage,
            access_key: given(&self.access_key, ""),
            secret_key: given(&self.secret_key, ""),
            session_token: given(&self.session_token, ""),
            storage_class: given(&self.storage_class, ""),
            capacity: self.capacity.unwrap_or(0),
            inodes: self.inodes.unwrap_or(0),
            trash_days: self.trash_days.unwrap_or(1),
            enable_acl: self.enable_acl,
            block_size: 4096,
            compression: "none".into(),
            encrypt_algo: "aes256gcm-rsa".into(),
            ..VolumeFormat::default()
        };
        self.set_fixed(&mut format);
        self.hadoop.apply(&mut format)?;
        if let Some(path) = &self.encrypt_rsa_key {
            format.encrypt_key =
                fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        seal(&mut format)?;
        Ok(format)
    }

    /// The settings of a volume that exists: what is given replaces what it has.
    fn changed(&self, existing: &VolumeFormat) -> Result<VolumeFormat> {
        if let Some(storage) = &self.storage
            && *storage != existing.storage
            && self.bucket.is_none()
        {
            bail!("the volume's objects are in {}; storage {storage} needs a --bucket", existing.storage);
        }
        let change = Config {
            storage: self.storage.clone(),
            bucket: self.bucket.clone(),
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            session_token: self.session_token.clone(),
            storage_class: self.storage_class.clone(),
            capacity: self.capacity,
            inodes: self.inodes,
            trash_days: self.trash_days,
            enable_acl: self.enable_acl.then_some(true),
            hadoop: self.hadoop.clone(),
            ..Config::default()
        };
        let mut format = change.changed(existing)?;
        format.name.clone_from(&self.name);
        if self.encrypt_rsa_key.is_some() && existing.encrypt_key.is_empty() {
            bail!("volume {} is not encrypted, and can be only from its beginning", existing.name);
        }
        self.set_fixed(&mut format);
        let fixed = |f: &VolumeFormat| {
            (f.block_size, f.compression.clone(), f.encrypt_algo.clone(), f.hash_prefix, f.shards)
        };
        if !self.force && fixed(&format) != fixed(existing) {
            bail!(
                "block size, compression, cipher, hash prefix and shards of volume {} stay as they are: its data \
                 is stored so; leave them out, or say --force",
                existing.name
            );
        }
        Ok(format)
    }

    /// The settings by which data is stored, as far as they are given.
    fn set_fixed(&self, format: &mut VolumeFormat) {
        format.block_size = self.block_size.unwrap_or(format.block_size);
        format.shards = self.shards.unwrap_or(format.shards);
        format.hash_prefix |= self.hash_prefix;
        if let Some(compress) = &self.compress {
            format.compression.clone_from(compress);
        }
        if let Some(cipher) = &self.encrypt_algo {
            format.encrypt_algo.clone_from(cipher);
        }
    }

    /// The bucket, or the directory that stands for one by default.
    fn bucket(&self, storage: &str) -> Result<String> {
        match &self.bucket {
            Some(bucket) => volume::bucket_of(storage, bucket),
            None if storage != "file" => bail!("storage {storage} needs a --bucket"),
            None if rustix::process::geteuid().is_root() => Ok("/var/jfs/".into()),
            None => {
                let home = env::var("HOME").context("HOME is not set; give a --bucket")?;
                volume::bucket_of("file", &format!("{home}/.juicefs/local"))
            }
        }
    }

    /// Tries the object store before anything is written to the database.
    fn probe(&self, format: &VolumeFormat, new: bool) -> Result<Arc<dyn ObjectStore>> {
        let store = volume::open_store(format)?;
        volume::runtime()?.block_on(async {
            sluice_object::probe(store.as_ref())
                .await
                .with_context(|| format!("{} does not work", store.describe()))?;
            if new && !self.force {
                sluice_object::ensure_empty(store.as_ref()).await?;
            }
            anyhow::Ok(())
        })?;
        Ok(store)
    }
}

/// Leaves the volume's UUID beside its objects, once there is a volume.
fn mark(store: &dyn ObjectStore, format: &VolumeFormat) -> Result<()> {
    let uuid = format.uuid.clone().into_bytes();
    if let Err(error) = volume::runtime()?.block_on(store.put(volume::UUID_OBJECT, uuid.into())) {
        tracing::warn!(%error, "the volume's UUID could not be stored beside its objects");
    }
    Ok(())
}

/// Puts the secrets of a new volume in their stored form.
fn seal(format: &mut VolumeFormat) -> Result<()> {
    for secret in [&mut format.secret_key, &mut format.session_token, &mut format.encrypt_key] {
        if !secret.is_empty() {
            *secret = sluice_object::crypto::seal_secret(&format.uuid, secret)?;
            format.key_encrypted = true;
        }
    }
    Ok(())
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

/// Block size in KiB.
fn block_size(text: &str) -> Result<u32, String> {
    let bytes = sizes::kib(text)?;
    let fits = bytes.is_power_of_two() && (64 << 10..=16 << 20).contains(&bytes);
    if fits { Ok((bytes >> 10) as u32) } else { Err("a block has 64K to 16M, and a power of two".into()) }
}
