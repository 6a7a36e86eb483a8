//! The words every other crate speaks: inodes, names, attributes, callers, errors, time and chance.
//!
//! Nothing here does I/O. The one exception to purity is [`SystemClock`] and [`Rng::from_os`],
//! which are the only places in Sluice that ask the machine for the wall clock or for randomness,
//! so that everything else can be replayed.

mod attr;
mod caller;
mod error;
mod ino;
mod interrupt;
pub mod metrics;
mod name;
mod rng;
mod slice;
mod time;
pub mod wait;

pub use attr::{Attr, AttrFlags, FileType, align4k};
pub use caller::{Access, Caller};
pub use error::{FsError, FsResult};
pub use ino::Ino;
pub use interrupt::{Asked, Interrupt};
pub use name::{MAX_NAME, Name};
pub use rng::Rng;
pub use slice::{CHUNK_SIZE, MAX_FILE_SIZE, Slice};
pub use time::{Clock, ManualClock, SystemClock, Time, parse_duration};
