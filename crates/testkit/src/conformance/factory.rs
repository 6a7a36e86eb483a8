//! Makes the stores for the cases.

use std::sync::Arc;

use sluice_meta::engine::Engine;

/// Makes a fresh, empty store. What it needs (a directory, a server) lives as long as the engine.
pub type Factory<'f> = dyn Fn() -> Arc<dyn Engine> + 'f;
