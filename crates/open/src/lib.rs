//! Opens volumes: the engine of a metadata URL, the object store that the settings name, and what
//! joins them. The command line and the libraries use this crate.
//!
//! What must stay true: this crate reads no environment variables. The program passes the variables
//! that the crate may use ([`Variables`]).

mod engines;
mod error;
mod failure;
mod group;
mod named;
mod session;
mod store;
mod variables;
mod volume;

pub use engines::{absolute, client_cache, engine, takes_password_from_environment};
pub use error::{OpenError, Result};
pub use failure::Failure;
pub use group::{GroupClient, group, group_name};
pub use named::parse_flag;
pub use session::{VERSION, addresses, host_name, session_info};
pub use store::{data_config, layout, region, store_config};
pub use variables::Variables;
pub use volume::{VolumeOptions, volume};
