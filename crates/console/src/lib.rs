//! The console: a page, and the JSON API under it, that show the state of volumes to whoever
//! operates them.
//!
//! What must stay true: nothing can be changed through it, no answer holds a secret, and whoever
//! has no token learns nothing but that there is a console. It knows metadata as [`sluice_meta`]
//! has them, and no engine: whoever starts it opens the volumes.

mod access;
mod api;
mod backlog;
mod clients;
mod connections;
mod console;
mod directories;
mod exposition;
mod group;
mod live;
mod problems;
mod quotas;
mod rates;
mod reports;
mod scrape;
mod server;
mod settings;
mod survey;
mod watch;

pub use access::OnToken;
pub use console::{Config, Console};
pub use survey::Opened;
pub use watch::{Open, Volume};
