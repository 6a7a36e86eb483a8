//! Opening a volume from the command line: engine, settings, session, object store.

use std::{
    env, fs,
    net::{Ipv4Addr, Ipv6Addr},
    process,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sluice_data::Layout;
use sluice_meta::{
    Meta, Options,
    engine::Engine,
    schema::{SessionInfo, VolumeFormat},
};
use sluice_object::{Encryption, Limits, ObjectStore, Secret, StoreConfig};
use sluice_types::Rng;
use tokio::runtime::Runtime;

use crate::engines;

/// Version text in session records. JuiceFS clients show it, and compare nothing with it.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+sluice");

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

/// The name of this machine; empty if it has none.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The addresses of this machine, but for those that mean itself or its link.
pub(crate) fn addresses() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut found = v4_addresses(&read("/proc/net/fib_trie"));
    found.extend(v6_addresses(&read("/proc/net/if_inet6")));
    found
}

/// Addresses in the routes of the kernel: a line with the address, and one that it is of this host.
fn v4_addresses(routes: &str) -> Vec<String> {
    let mut found = Vec::<String>::new();
    let mut last = None;
    for line in routes.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.filter(|address| !address.is_loopback())
            && !found.contains(&address.to_string())
        {
            found.push(address.to_string());
        }
    }
    found
}

/// Addresses as the kernel lists them: 32 digits, then numbers, the third of which is the scope.
fn v6_addresses(list: &str) -> Vec<String> {
    let global = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(2)? == "00").then(|| Ipv6Addr::from_bits(address).to_string())
    };
    list.lines().filter_map(global).collect()
}

/// What other clients see of this process.
pub(crate) fn session_info(mount_point: &str) -> SessionInfo {
    SessionInfo {
        version: VERSION.into(),
        host_name: host_name(),
        ip_addrs: addresses(),
        mount_point: mount_point.into(),
        mount_time: sluice_types::Clock::now(&sluice_types::SystemClock).utc("%Y-%m-%dT%H:%M:%SZ"),
        process_id: process::id(),
        ..SessionInfo::default()
    }
}

/// How to reach the object store of a volume: its settings, with the secrets opened.
pub(crate) fn store_config(format: &VolumeFormat) -> Result<StoreConfig> {
    let open = |what: &str, stored: &str| -> Result<Secret> {
        if stored == "removed" {
            anyhow::bail!("the volume's {what} was removed by a dump; set it again with `sluice config`");
        }
        if stored.is_empty() || !format.key_encrypted {
            return Ok(stored.to_owned().into());
        }
        let opened = sluice_object::crypto::open_secret(&format.uuid, stored);
        Ok(opened.with_context(|| format!("the volume's {what} cannot be decrypted"))?.into())
    };
    let key_pem = open("encryption key", &format.encrypt_key)?;
    let encryption = if key_pem.is_empty() {
        None
    } else {
        let cipher = format.encrypt_algo.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let passphrase = env::var("JFS_RSA_PASSPHRASE").unwrap_or_default().into();
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
        region: region(),
        limits: Limits {
            upload_mbps: format.upload_limit.max(0) as u64,
            download_mbps: format.download_limit.max(0) as u64,
        },
        ..StoreConfig::default()
    })
}

/// Region of a bucket whose address does not contain it; empty if the environment names none.
pub(crate) fn region() -> String {
    env::var("AWS_REGION").or_else(|_| env::var("AWS_DEFAULT_REGION")).unwrap_or_default()
}

/// How objects are named and divided into blocks in a volume.
///
/// # Errors
/// If its block size cannot be.
pub(crate) fn layout(format: &VolumeFormat) -> Result<Layout> {
    ensure!(format.block_size > 0, "the volume's block size is 0");
    Ok(Layout { block_size: format.block_size << 10, hash_prefix: format.hash_prefix })
}

/// Storage class of what is written: that of the first tier, or the old member where there are no
/// tiers.
fn storage_class(format: &VolumeFormat) -> String {
    format.tiers.get("0").map_or_else(|| format.storage_class.clone(), |tier| tier.storage_class.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_the_kernel_lists() {
        let routes = "Main:\n  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- 192.0.2.0\n     /24 link UNICAST\n  \
                      |-- 192.0.2.2\n     /32 host LOCAL\nLocal:\n  |-- 192.0.2.2\n     /32 host LOCAL\n";
        assert_eq!(v4_addresses(routes), ["192.0.2.2"]);
        let list = "00000000000000000000000000000001 01 80 10 80 lo\nfe80000000000000fc00fffe00000001 04 40 20 80 \
                    eth0\nfd000000000000000000000000000002 04 40 00 82 eth0\n";
        assert_eq!(v6_addresses(list), ["fd00::2"]);
        assert!(v4_addresses("").is_empty() && v6_addresses("x\n").is_empty());
    }
}
