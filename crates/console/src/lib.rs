//! The console: a web page and a JSON API that show the state of volumes to their operator.
//!
//! What must stay true: the console changes nothing, and no answer contains a secret. A client
//! without a token learns only that this is a console. The crate reads metadata through
//! [`sluice_meta`] and depends on no engine: the caller opens the volumes.

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
mod served;
mod server;
mod settings;
mod survey;
mod watch;

pub use access::OnToken;
pub use console::{Config, Console};
pub use served::{Served, served};
pub use survey::Opened;
pub use watch::{Open, Volume};
