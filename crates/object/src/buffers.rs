//! Buffers for whole blocks, and the pool of those on the heap. It reuses a buffer while blocks
//! keep coming. `mapped` is the pool of page-aligned memory for direct I/O.
//!
//! The system provides new memory page by page. To access all pages of a new buffer for the first
//! time takes as long as to read the block into it. What must stay true: few buffers are kept, and
//! none after some time without requests.

use std::ops::{Deref, DerefMut};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;

use crate::{
    idle::{IDLE, Idle, LARGE},
    mapped::{self, Mapped},
};

/// Where large buffers begin: what disks ask for.
pub(crate) const PAGE: usize = 4096;
/// From this many bytes on, the content of a buffer begins at a page.
pub(crate) const ALIGNED: usize = 64 << 10;

/// The buffers of this process.
static BUFFERS: Buffers = Buffers::new(&IDLE);

/// The idle buffers.
struct Buffers {
    free: Mutex<Free>,
    /// The idle memory that they are part of.
    idle: &'static Idle,
}

struct Free {
    buffers: Vec<Vec<u8>>,
    /// Their capacities.
    bytes: usize,
    /// Whether a buffer was taken since the last [`Buffers::shed`].
    asked: bool,
}

/// Bytes whose buffer is reused when their last reader is gone.
struct Lent {
    buffer: Vec<u8>,
    of: &'static Buffers,
}

/// An empty buffer for `bytes` bytes. Pass it to [`lend`] when it is filled.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
    if bytes < LARGE {
        return Vec::with_capacity(bytes);
    }
    let mut buffer = BUFFERS.take(bytes);
    buffer.clear();
    buffer
}

/// The bytes of a filled buffer.
pub(crate) fn lend(buffer: Vec<u8>) -> Bytes {
    if buffer.capacity() < LARGE { Bytes::from(buffer) } else { BUFFERS.lend(buffer) }
}

/// Bytes that grow at their end. Large buffers are reused, and begin at a page of memory, so that a
/// disk can read and write them without a copy.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    /// Where the content begins.
    start: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Mapped {
        memory: Mapped,
        /// Where the content ends.
        end: usize,
    },
}

impl Default for Buffer {
    fn default() -> Self {
        Self { memory: Memory::Heap(Vec::new()), start: 0 }
    }
}

impl Buffer {
    /// From this many bytes on, buffers are reused.
    pub const LARGE: usize = LARGE;

    /// An empty one with room for `bytes` bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self::mapped(bytes, 0).unwrap_or_else(|| Self::on_heap(bytes))
    }

    /// One on the heap. The content of one that a disk may write itself begins at a page.
    fn on_heap(room: usize) -> Self {
        if !(ALIGNED..LARGE).contains(&room) {
            return Self { memory: Memory::Heap(Vec::with_capacity(room)), start: 0 };
        }
        let mut memory: Vec<u8> = Vec::with_capacity(room + PAGE);
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        memory.resize(start, 0);
        Self { memory: Memory::Heap(memory), start }
    }

    /// One of `bytes` bytes, whatever they are.
    pub fn with_length(bytes: usize) -> Self {
        Self::mapped(bytes, bytes).unwrap_or_else(|| {
            let mut buffer = Self::on_heap(bytes);
            if let Memory::Heap(memory) = &mut buffer.memory {
                memory.resize(buffer.start + bytes, 0);
            }
            buffer
        })
    }

    fn mapped(room: usize, end: usize) -> Option<Self> {
        let memory = if room < LARGE { None } else { Mapped::take(room) }?;
        Some(Self { memory: Memory::Mapped { memory, end }, start: 0 })
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        match &self.memory {
            Memory::Heap(bytes) => bytes.capacity(),
            Memory::Mapped { memory, .. } => memory.bytes().len(),
        }
    }

    /// Bytes that it can hold without another buffer.
    pub fn room(&self) -> usize {
        self.memory() - self.start
    }

    /// Makes room for `bytes` bytes in all.
    pub fn make_room(&mut self, bytes: usize) {
        if bytes > self.room() {
            let mut larger = Self::with_room(bytes);
            larger.append(self);
            *self = larger;
        }
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, more: &[u8]) {
        self.make_room(self.len() + more.len());
        match &mut self.memory {
            Memory::Heap(bytes) => bytes.extend_from_slice(more),
            Memory::Mapped { memory, end } => {
                memory.bytes_mut()[*end..*end + more.len()].copy_from_slice(more);
                *end += more.len();
            }
        }
    }

    /// Removes the first `count` bytes, all of them if there are not so many.
    pub fn drop_front(&mut self, count: usize) {
        self.start += count.min(self.len());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => &bytes[self.start..],
            Memory::Mapped { memory, end } => &memory.bytes()[self.start..*end],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => &mut bytes[self.start..],
            Memory::Mapped { memory, end } => &mut memory.bytes_mut()[self.start..*end],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        match buffer.memory {
            Memory::Heap(bytes) => {
                let mut whole = Self::from(bytes);
                whole.advance(buffer.start);
                whole
            }
            Memory::Mapped { .. } => Self::from_owner(buffer),
        }
    }
}

/// Frees idle buffers if none was taken since the last call. Call it from time to time.
pub fn shed() {
    BUFFERS.shed();
    mapped::shed();
}

impl Buffers {
    const fn new(idle: &'static Idle) -> Self {
        Self { free: Mutex::new(Free { buffers: Vec::new(), bytes: 0, asked: false }), idle }
    }

    /// A buffer for so many bytes, with what it held before.
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.free.lock();
        free.asked = true;
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= bytes && buffer.capacity() / 2 < bytes;
        let Some(found) = free.buffers.iter().rposition(fits) else {
            drop(free);
            return Vec::with_capacity(bytes);
        };
        let buffer = free.buffers.swap_remove(found);
        free.bytes -= buffer.capacity();
        self.idle.sub(buffer.capacity());
        buffer
    }

    fn lend(&'static self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, of: self })
    }

    fn shed(&self) {
        let mut free = self.free.lock();
        if !std::mem::take(&mut free.asked) {
            self.idle.sub(std::mem::take(&mut free.bytes));
            let buffers = std::mem::take(&mut free.buffers);
            drop(free);
            drop(buffers);
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut free = self.of.free.lock();
        if free.asked && self.of.idle.add(buffer.capacity()) {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
        } else {
            drop(free);
            drop(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::MOST;

    #[test]
    fn buffers_serve_again_until_nobody_asks() {
        static IDLE: Idle = Idle::new();
        static OURS: Buffers = Buffers::new(&IDLE);
        let mut buffer = OURS.take(LARGE);
        buffer.resize(LARGE, 7);
        let at = buffer.as_ptr();
        let bytes = OURS.lend(buffer);
        let part = bytes.slice(5..10);
        drop(bytes);
        let other = OURS.take(LARGE);
        assert_ne!(other.as_ptr(), at, "the first is read still");
        assert_eq!(part, [7; 5][..]);
        drop(part);
        let again = OURS.take(LARGE);
        assert_eq!(again.as_ptr(), at);
        drop(OURS.lend(again));
        OURS.shed();
        assert!(!OURS.free.lock().buffers.is_empty(), "somebody asked lately");
        OURS.shed();
        assert!(OURS.free.lock().buffers.is_empty());
        drop(OURS.lend(other));
        assert!(OURS.free.lock().buffers.is_empty(), "nobody asks");

        let many: Vec<Bytes> = (0..20).map(|_| OURS.lend(OURS.take(LARGE))).collect();
        drop(many);
        let idle = OURS.free.lock();
        assert_eq!(idle.bytes, idle.buffers.iter().map(Vec::capacity).sum::<usize>());
        assert!(idle.bytes <= MOST && !idle.buffers.is_empty());
    }

    #[test]
    fn large_buffers_begin_at_a_page_and_keep_their_bytes() {
        for room in [10, LARGE - 1, LARGE, LARGE + 5] {
            let mut buffer = Buffer::with_room(room);
            buffer.append(b"abc");
            let at = buffer.as_ptr();
            assert!(room < LARGE || at.align_offset(PAGE) == 0, "{at:?}");
            buffer.append(&vec![7; room - 3]);
            assert_eq!(buffer.as_ptr(), at, "there was room");
            buffer.make_room(2 * LARGE);
            assert_eq!((buffer.len(), &buffer[..4]), (room, &b"abc\x07"[..]));
            buffer.drop_front(2);
            buffer[0] = b'd';
            assert_eq!(Bytes::from(buffer)[..2], b"d\x07"[..]);
        }
        let mut small = Buffer::with_room(3);
        small.append(b"abc");
        small.drop_front(1);
        assert_eq!(Bytes::from(small), b"bc"[..]);
        assert_eq!(Buffer::with_length(LARGE).len(), LARGE);
    }
}
