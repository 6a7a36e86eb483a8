//! Opens the engine of a metadata URL with what the environment of this process says.

use std::{env, sync::Arc};

use anyhow::Result;
use sluice_meta::{ClientCache, engine::Engine};

/// A variable of the environment, if it is there and is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Opens the engine that `url` names. A password may come from the environment instead of the URL.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Engine>> {
    Ok(sluice_open::engine(url, &variable)?)
}

/// What `url` says of the cache of a mount: see [`ClientCache`].
pub(crate) fn client_cache(url: &str) -> Result<Option<ClientCache>> {
    Ok(sluice_open::client_cache(url)?)
}

/// The URL of a database in a file with an absolute path, so that it means the same wherever the
/// process goes. Others are left as they are.
pub(crate) fn absolute(url: &str) -> Result<String> {
    Ok(sluice_open::absolute(url)?)
}

/// Whether the environment gives the password of the server at `url`.
pub(crate) fn takes_password_from_environment(url: &str) -> Result<bool> {
    Ok(sluice_open::takes_password_from_environment(url, &variable)?)
}
