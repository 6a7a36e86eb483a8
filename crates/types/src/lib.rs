//! The types that all other crates use: inodes, names, attributes, callers, errors, time and
//! randomness.
//!
//! Nothing here does I/O. [`SystemClock`] and [`Rng::from_os`] are the only places in Sluice that
//! read the wall clock or get randomness from the system, so that everything else can be replayed.

mod attr;
mod caller;
mod condvar;
mod error;
mod ino;
mod interrupt;
mod job;
mod linux;
pub mod metrics;
mod name;
mod printable;
mod rng;
mod shared_lock;
mod size;
mod slice;
mod time;
mod timetable;
pub mod wait;

pub use attr::{Attr, AttrFlags, FileType, align4k};
pub use caller::{Access, Caller};
pub use condvar::Condvar;
pub use error::{FsError, FsResult};
pub use ino::Ino;
pub use interrupt::{Asked, Interrupt};
pub use job::job;
pub use name::{MAX_NAME, Name};
pub use printable::printable;
pub use rng::Rng;
pub use shared_lock::SharedLock;
pub use size::parse_size;
pub use slice::{CHUNK_SIZE, MAX_FILE_SIZE, Slice};
pub use time::{Clock, ManualClock, SystemClock, Time, parse_duration};
pub use timetable::{Scheduled, Timetable};
