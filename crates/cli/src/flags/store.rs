//! Flags about the object store.
//!
//! What must stay true: a flag that is not given has the value of the volume's settings.

use std::time::Duration;

use clap::Args;
use sluice_data::DataConfig;
use sluice_meta::schema::VolumeFormat;
use sluice_object::{Limits, StoreConfig};

use super::UnusedFlags;
use crate::{sizes, volume};

/// Blocks written to the local disk at once.
const MAX_STAGE_WRITE: usize = 1000;

/// How the object storage is reached.
#[derive(Args)]
#[command(next_help_heading = "Object storage")]
pub(crate) struct StoreFlags {
    /// Another driver than the volume's settings name
    #[arg(long, value_name = "DRIVER")]
    storage: Option<String>,
    /// Another bucket than the volume's settings name
    #[arg(long, value_name = "URL")]
    bucket: Option<String>,
    /// Storage class of what this client writes
    #[arg(long, value_name = "CLASS")]
    storage_class: Option<String>,
    #[arg(long, value_name = "KEY=VALUE", hide = true)]
    tag: Option<String>,
    /// Time for one try to read an object
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sizes::duration)]
    get_timeout: Duration,
    /// Time for one try to write an object
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = sizes::duration)]
    put_timeout: Duration,
    /// Tries after a failure; without it, as many as fit into five minutes
    #[arg(long, value_name = "N")]
    io_retries: Option<u32>,
    /// Limit of writing in Mbps [default: as the volume's settings say]
    #[arg(long, value_name = "MBPS")]
    upload_limit: Option<u64>,
    /// Limit of reading in Mbps [default: as the volume's settings say]
    #[arg(long, value_name = "MBPS")]
    download_limit: Option<u64>,
}

impl StoreFlags {
    /// Notes what does nothing.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        unused.refuse(
            "--tag",
            self.tag.as_ref().is_some_and(|tag| !tag.is_empty()),
            "objects cannot be tagged as they are written; have a rule of the bucket tag them by their prefix",
        );
    }

    /// How to reach the store of a volume: as its settings say, and as the flags say otherwise.
    pub(crate) fn config(&self, format: &VolumeFormat) -> anyhow::Result<StoreConfig> {
        let mut store = volume::store_config(format)?;
        self.apply(&mut store)?;
        Ok(store)
    }

    /// Limit of reading in Mbps, 0 for none.
    pub(crate) fn download_mbps(&self, format: &VolumeFormat) -> u64 {
        self.download_limit.unwrap_or(format.download_limit.max(0) as u64)
    }

    /// Changes what the volume's settings say into what the flags say.
    fn apply(&self, store: &mut StoreConfig) -> anyhow::Result<()> {
        let set = |field: &mut String, flag: &Option<String>| {
            if let Some(value) = flag {
                field.clone_from(value);
            }
        };
        set(&mut store.storage, &self.storage);
        set(&mut store.storage_class, &self.storage_class);
        if let Some(bucket) = &self.bucket {
            store.bucket = volume::bucket_of(&store.storage, bucket)?;
        }
        store.retry.get_timeout = self.get_timeout;
        store.retry.put_timeout = self.put_timeout;
        if let Some(retries) = self.io_retries {
            store.retry.attempts = retries.saturating_add(1);
        }
        let Limits { upload_mbps, download_mbps } = store.limits;
        store.limits = Limits {
            upload_mbps: self.upload_limit.unwrap_or(upload_mbps),
            download_mbps: self.download_limit.unwrap_or(download_mbps),
        };
        Ok(())
    }
}

/// How much of it is used at once.
#[derive(Args)]
#[command(next_help_heading = "Object storage")]
pub(crate) struct TransferFlags {
    /// Objects written at once
    #[arg(long, value_name = "N", default_value_t = 20)]
    max_uploads: usize,
    /// Objects read at once
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_downloads: usize,
    /// Objects deleted at once
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_deletes: usize,
    /// With --writeback: blocks written to the local disk at once; others are uploaded directly; 0
    /// for no limit
    #[arg(long, value_name = "N", default_value_t = MAX_STAGE_WRITE)]
    pub(crate) max_stage_write: usize,
    /// fsync does not wait for the disk of `file` storage, as with JuiceFS: a power cut may lose
    /// what it acknowledged
    #[arg(long)]
    no_store_sync: bool,
    /// Try the object storage before anything else
    #[arg(long)]
    pub(crate) check_storage: bool,
}

impl TransferFlags {
    /// Whether blocks written to the local disk have another limit than by themselves.
    pub(crate) fn limits_stages(&self) -> bool {
        self.max_stage_write != MAX_STAGE_WRITE
    }

    /// The part that the data path has to know.
    pub(crate) fn apply(&self, data: &mut DataConfig) {
        data.max_uploads = self.max_uploads.max(1);
        data.max_downloads = self.max_downloads.max(1);
        data.max_deletes = self.max_deletes.max(1);
        data.sync_store = !self.no_store_sync;
    }
}
