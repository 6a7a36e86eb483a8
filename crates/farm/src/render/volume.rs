//! The volume of a farm: how its processes open it, and who its cache nodes are.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use sluice_meta::{Meta, Options, engine::Engine, schema};
use sluice_meta_redis::RedisEngine;
use sluice_meta_sql::PostgresEngine;
use sluice_object::StoreConfig;
use sluice_peer::Group;
use sluice_testkit::{
    server::objects::{ACCESS_KEY, BUCKET, SECRET_KEY},
    wrap::Counting,
};
use sluice_types::{Clock as _, SystemClock};

/// The cache group.
pub(crate) const GROUP: &str = "farm";

/// Opens the engine of a URL. It counts what it is asked.
pub(crate) fn engine(url: &str) -> Result<Arc<Counting>> {
    let engine: Arc<dyn Engine> = match url.split("://").next() {
        Some("redis") => Arc::new(RedisEngine::open(url)?),
        Some("postgres") => Arc::new(PostgresEngine::open(url)?),
        _ => bail!("a farm is on Redis or PostgreSQL, not on {url}"),
    };
    Ok(Arc::new(Counting::new(engine)))
}

/// Makes the volume, whose objects are at a port of this machine.
pub(crate) fn format(engine: &dyn Engine, port: u16) -> Result<()> {
    let format = schema::VolumeFormat {
        name: "farm".into(),
        uuid: "fa0f0000-0000-4000-8000-00000000fa0f".into(),
        storage: "minio".into(),
        bucket: format!("http://127.0.0.1:{port}/{BUCKET}"),
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        dir_stats: true,
        meta_version: 1,
        ..schema::VolumeFormat::default()
    };
    Ok(Meta::format(engine, &format, SystemClock.now())?)
}

pub(crate) fn store_config(meta: &Meta) -> StoreConfig {
    let format = meta.env().format();
    StoreConfig {
        storage: format.storage.clone(),
        bucket: format.bucket.clone(),
        access_key: format.access_key.clone(),
        secret_key: format.secret_key.clone().into(),
        name: format.name.clone(),
        ..StoreConfig::default()
    }
}

/// How a client of the farm appears to others.
pub(crate) fn options(name: String, read_only: bool) -> Options {
    let info = schema::SessionInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        host_name: "farm".into(),
        mount_point: name,
        process_id: std::process::id(),
        ..schema::SessionInfo::default()
    };
    Options { read_only, info, ..Options::default() }
}

/// Takes the list of members, which has somebody in it.
pub(crate) fn join(group: &Group) -> Result<()> {
    group.refresh().map_err(anyhow::Error::msg)?;
    (!group.members().members.is_empty()).then_some(()).context("the cache group has no member")
}
