//! `sluice objbench`: whether an object store can hold a volume, and how fast it is.
//!
//! What must stay true: all its objects have one prefix, which nothing else uses. It deletes them
//! when it ends, also after an error or a signal.

mod cases;
mod speed;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use sluice_object::{ObjectStore, StoreConfig};
use tokio::runtime::Builder;

use self::speed::Speed;
use crate::{signals, sizes, table, volume};

/// Bytes of the largest object.
const MAX_OBJECT: u64 = 1 << 30;

/// Test and measure an object store
///
/// First it does once what a volume needs of its store, and says what works. Then it measures. It
/// needs no volume.
#[derive(Args)]
#[command(after_help = "Examples:
  sluice objbench /var/objects
  ACCESS_KEY=… SECRET_KEY=… sluice objbench --storage s3 https://data.s3.us-east-2.amazonaws.com -p 20")]
pub(crate) struct Objbench {
    /// Bucket: an endpoint URL, or a directory
    #[arg(value_name = "ENDPOINT")]
    bucket: String,
    /// Object storage driver, such as s3, gs or oss
    #[arg(long, default_value = "file")]
    storage: String,
    /// Access key of the object storage
    #[arg(long, env = "ACCESS_KEY", hide_env_values = true, default_value = "", hide_default_value = true)]
    access_key: String,
    /// Secret key of the object storage
    #[arg(long, env = "SECRET_KEY", hide_env_values = true, default_value = "", hide_default_value = true)]
    secret_key: String,
    /// Session token of the object storage
    #[arg(
        long,
        env = "SESSION_TOKEN",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    session_token: String,
    /// Storage class of the objects
    #[arg(long, visible_alias = "sc", default_value = "", hide_default_value = true)]
    storage_class: String,
    /// Spread objects over this many buckets; the bucket's name holds a %d
    #[arg(long, value_name = "N", default_value_t = 0)]
    shards: u32,
    /// Size of one large object, as of a block of a volume; a bare number is KiB
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = sizes::kib)]
    block_size: u64,
    /// Size of all large objects together; a bare number is MiB
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = sizes::mib)]
    big_object_size: u64,
    /// Size of one small object; a bare number is KiB
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = sizes::kib)]
    small_object_size: u64,
    /// Small objects
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    small_objects: u64,
    /// Only measure
    #[arg(long)]
    skip_functional_tests: bool,
    /// Requests at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl Objbench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(
            self.block_size > 0 && self.big_object_size > 0 && self.small_object_size > 0,
            "--block-size, --big-object-size and --small-object-size need at least one byte"
        );
        ensure!(
            self.block_size.max(self.small_object_size) <= MAX_OBJECT,
            "--block-size and --small-object-size are at most 1 GiB: each request holds one object in memory"
        );
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let store = self.open()?;
        let interrupt = signals::interrupt()?;
        let measured = runtime.block_on(async {
            let mut works = true;
            if !self.skip_functional_tests {
                let (rows, all) = cases::run(store.as_ref(), &interrupt).await?;
                works = all;
                // They would be listed, too.
                remove_all(store.as_ref(), usize::from(self.threads)).await?;
                // Only now: if nobody reads what is printed, the program ends.
                table::print(&rows, &[0, 1]);
            }
            Ok::<_, anyhow::Error>((works, self.speed().run(&store, &interrupt).await?))
        });
        let removed = runtime
            .block_on(remove_all(store.as_ref(), usize::from(self.threads)))
            .with_context(|| format!("objects are left below {}", store.describe()));
        if let (Err(_), Err(error)) = (&measured, &removed) {
            errln!("sluice: {error:#}");
        }
        let (works, rows) = measured?;
        removed?;
        let well = works & self.speed().print(&rows);
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The store, with a prefix that nobody else has.
    fn open(&self) -> Result<Arc<dyn ObjectStore>> {
        let storage = self.storage.to_ascii_lowercase();
        ensure!(
            storage != "file" || !self.bucket.contains("://"),
            "{} is no directory; name its driver with --storage",
            self.bucket
        );
        let config = StoreConfig {
            bucket: volume::bucket_of(&storage, &self.bucket)?,
            storage,
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone().into(),
            session_token: self.session_token.clone().into(),
            region: volume::region(),
            storage_class: self.storage_class.clone(),
            name: format!("__sluice_benchmark_{}__", volume::new_uuid()),
            shards: self.shards,
            ..StoreConfig::default()
        };
        volume::open_to_try(config)
    }

    fn speed(&self) -> Speed {
        Speed {
            block_size: self.block_size,
            blocks: self.big_object_size.div_ceil(self.block_size),
            small_size: self.small_object_size,
            smalls: self.small_objects,
            threads: usize::from(self.threads),
        }
    }
}

/// Removes all objects of the store, so many at once.
async fn remove_all(store: &dyn ObjectStore, at_once: usize) -> Result<()> {
    let found: Vec<_> = store.list("").try_collect().await?;
    let remove = |key: String| async move { store.delete(&key).await };
    let keys = found.into_iter().map(|meta| meta.key);
    futures::stream::iter(keys).map(remove).buffer_unordered(at_once).try_collect::<()>().await?;
    // The directory, if the store has directories.
    if let Err(error) = store.delete("").await {
        tracing::debug!(%error, "the empty directory stays");
    }
    Ok(())
}
