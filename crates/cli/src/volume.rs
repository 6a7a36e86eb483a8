//! Opening a volume from the command line: engine, settings, session, object store.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use sluice_data::Layout;
use sluice_meta::{Meta, Options, engine::Engine, schema::VolumeFormat};
use sluice_object::{ObjectError, ObjectStore, StoreConfig};
pub(crate) use sluice_open::{VERSION, addresses, host_name, session_info};
use sluice_types::Rng;
use tokio::runtime::Runtime;

use crate::engines;

/// The object that holds the UUID of a volume.
pub(crate) const UUID_OBJECT: &str = "juicefs_uuid";

/// The settings of the volume in `engine`.
pub(crate) fn format_of(engine: &dyn Engine) -> Result<VolumeFormat> {
    Meta::load_format(engine)?.with_context(|| {
        format!(
            "there is no volume in this {} database; make one with `sluice format META-URL NAME`",
            engine.name()
        )
    })
}

/// Opens a volume for a tool, which appears as `purpose` among the sessions.
pub(crate) fn open_meta(url: &str, purpose: &str, read_only: bool) -> Result<Arc<Meta>> {
    let meta = open_engine(engines::open(url)?, purpose, read_only)?;
    meta.keep_alive().context("no thread to show that this client lives")?;
    Ok(meta)
}

/// The same of an engine that is open.
pub(crate) fn open_engine(engine: Arc<dyn Engine>, purpose: &str, read_only: bool) -> Result<Arc<Meta>> {
    let options = Options { read_only, info: session_info(purpose), ..Options::default() };
    Ok(Meta::open(engine, options)?)
}

/// How to reach the object store of a volume: its settings, with the secrets opened.
pub(crate) fn store_config(format: &VolumeFormat) -> Result<StoreConfig> {
    Ok(sluice_open::store_config(format, &engines::variable)?)
}

/// Region of a bucket whose address does not contain it; empty if the environment names none.
pub(crate) fn region() -> String {
    sluice_open::region(&engines::variable)
}

/// How objects are named and divided into blocks in a volume.
///
/// # Errors
/// If its block size cannot be.
pub(crate) fn layout(format: &VolumeFormat) -> Result<Layout> {
    Ok(sluice_open::layout(format)?)
}

/// Opens the object store of a volume to try whether it works.
pub(crate) fn open_store(format: &VolumeFormat) -> Result<Arc<dyn ObjectStore>> {
    open_to_try(store_config(format)?)
}

/// Opens an object store to try whether it works: somebody waits for the answer.
pub(crate) fn open_to_try(mut config: StoreConfig) -> Result<Arc<dyn ObjectStore>> {
    config.retry.attempts = 3;
    config.retry.give_up = Duration::from_secs(20);
    Ok(sluice_object::open(&config)?)
}

/// Looks for the object that each volume has, where none of its blocks was found: a disk that is
/// not mounted looks like an empty store.
///
/// # Errors
/// If it is not there, or if that is not known.
pub(crate) async fn find_marker(store: &dyn ObjectStore) -> Result<()> {
    match store.head(UUID_OBJECT).await {
        Ok(_) => Ok(()),
        Err(ObjectError::NotFound { .. }) => {
            bail!("there is no object of the volume, not even {UUID_OBJECT}; is its disk mounted?")
        }
        Err(error) => Err(error).with_context(|| {
            format!("there is no object of the volume, and whether {UUID_OBJECT} is there is not known")
        }),
    }
}

/// A runtime for the few calls to an object store that a command makes itself.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A bucket as settings hold it: the directory of `file` storage becomes absolute and ends in `/`.
pub(crate) fn bucket_of(storage: &str, bucket: &str) -> Result<String> {
    if storage != "file" {
        return Ok(bucket.to_owned());
    }
    let path = std::path::absolute(bucket).with_context(|| format!("bucket {bucket}"))?;
    Ok(format!("{}/", path.display().to_string().trim_end_matches('/')))
}

/// Identity for a new volume.
pub(crate) fn new_uuid() -> String {
    let mut bytes = [0; 16];
    Rng::from_os().fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
