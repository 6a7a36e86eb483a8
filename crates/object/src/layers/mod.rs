//! Layers around any store. Each is a store itself, and passes on what it does not change.

mod encrypted;
mod observed;
mod prefixed;
mod retry;
mod sharded;
mod throttle;

pub use encrypted::Encrypted;
pub use observed::{LATENCY_BOUNDS, MethodStats, Observed, Stats};
pub use prefixed::Prefixed;
pub use retry::Retry;
pub use sharded::Sharded;
pub use throttle::Throttle;
