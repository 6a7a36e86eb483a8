//! A pool of buffers for whole blocks. They are reused while blocks keep coming.
//!
//! The system provides new memory page by page. To access all pages of a new buffer for the first
//! time takes as long as to read the block into it. What must stay true: few buffers are kept, and
//! none after some time without requests.

use bytes::Bytes;
use parking_lot::Mutex;

/// From this size on, the allocator returns freed memory to the system.
const LARGE: usize = 4 << 20;
/// Most bytes of idle buffers.
const MAX_IDLE: usize = 32 << 20;

/// The buffers of this process.
static BUFFERS: Buffers = Buffers::new();

/// The idle buffers.
struct Buffers(Mutex<Idle>);

struct Idle {
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
    if bytes < LARGE { Vec::with_capacity(bytes) } else { BUFFERS.take(bytes) }
}

/// The bytes of a filled buffer.
pub(crate) fn lend(buffer: Vec<u8>) -> Bytes {
    if buffer.capacity() < LARGE { Bytes::from(buffer) } else { BUFFERS.lend(buffer) }
}

/// Frees idle buffers if none was taken since the last call. Call it from time to time.
pub fn shed() {
    BUFFERS.shed();
}

impl Buffers {
    const fn new() -> Self {
        Self(Mutex::new(Idle { buffers: Vec::new(), bytes: 0, asked: false }))
    }

    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut idle = self.0.lock();
        idle.asked = true;
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= bytes && buffer.capacity() / 2 < bytes;
        let Some(found) = idle.buffers.iter().rposition(fits) else {
            drop(idle);
            return Vec::with_capacity(bytes);
        };
        let mut buffer = idle.buffers.swap_remove(found);
        idle.bytes -= buffer.capacity();
        buffer.clear();
        buffer
    }

    fn lend(&'static self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, of: self })
    }

    fn shed(&self) {
        let mut idle = self.0.lock();
        if !std::mem::take(&mut idle.asked) {
            idle.bytes = 0;
            let buffers = std::mem::take(&mut idle.buffers);
            drop(idle);
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
        let mut idle = self.of.0.lock();
        if idle.asked && idle.bytes + buffer.capacity() <= MAX_IDLE {
            idle.bytes += buffer.capacity();
            idle.buffers.push(buffer);
        } else {
            drop(idle);
            drop(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_serve_again_until_nobody_asks() {
        static OURS: Buffers = Buffers::new();
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
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        drop(OURS.lend(again));
        OURS.shed();
        assert!(!OURS.0.lock().buffers.is_empty(), "somebody asked lately");
        OURS.shed();
        assert!(OURS.0.lock().buffers.is_empty());
        drop(OURS.lend(other));
        assert!(OURS.0.lock().buffers.is_empty(), "nobody asks");

        let many: Vec<Bytes> = (0..20).map(|_| OURS.lend(OURS.take(LARGE))).collect();
        drop(many);
        let idle = OURS.0.lock();
        assert_eq!(idle.bytes, idle.buffers.iter().map(Vec::capacity).sum::<usize>());
        assert!(idle.bytes <= MAX_IDLE && !idle.buffers.is_empty());
    }
}
