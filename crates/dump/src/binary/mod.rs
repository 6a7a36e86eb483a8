//! The binary form (JuiceFS 1.3 and later): segments of protocol buffers, then a footer.
//!
//! A segment consists of its kind (`u32`), its length (`u64`), both big endian, and a message. The
//! segments have any order. After the last segment come the end mark, a footer with the offsets of
//! the segments by kind, and the length of the footer (`u64`).

mod inspect;
mod messages;
mod read;
mod segment;
mod write;

pub use inspect::{contents, segment_at};
pub use read::Reader;
pub(crate) use segment::{ROWS, Segment};
pub use write::Writer;

/// Stands where a segment's kind stands, after the last one; also in the footer.
const END: u32 = 0x0074_7083;
/// Version of the format.
const VERSION: u32 = 1;

/// The records of one kind in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The kind, as the dump names it: `node`, `edge`, `chunk`.
    pub name: String,
    /// How many records.
    pub count: u64,
    /// Where the segments that hold them begin, in bytes from the beginning of the dump.
    pub offsets: Vec<u64>,
}
