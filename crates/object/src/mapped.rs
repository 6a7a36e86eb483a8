//! The pool of page-aligned memory for direct I/O of whole blocks, in huge pages where the system
//! has them. `buffers` is the pool of buffers on the heap.
//!
//! A disk that reads or writes a buffer itself gets one piece of memory for each page. With pages
//! of 4 KiB, a block has 1,024 pieces, and a virtual disk spends more time on them than on the
//! bytes.
//!
//! What must stay true: little memory is kept idle, and none after some time without requests.

use memmap2::MmapMut;
use parking_lot::Mutex;

use crate::idle::IDLE;

/// Sizes are multiples of this, a huge page.
const HUGE: usize = 2 << 20;

static POOL: Mutex<Free> = Mutex::new(Free { pieces: Vec::new(), bytes: 0, asked: false });

#[derive(Debug)]
struct Free {
    pieces: Vec<MmapMut>,
    bytes: usize,
    /// Whether memory was taken since the last [`shed`].
    asked: bool,
}

/// Memory that is reused when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapped(Option<MmapMut>);

impl Mapped {
    /// At least so many bytes, whatever they are; `None` if the system has no more.
    pub(crate) fn take(bytes: usize) -> Option<Self> {
        let size = bytes.next_multiple_of(HUGE);
        {
            let mut free = POOL.lock();
            free.asked = true;
            if let Some(found) = free.pieces.iter().rposition(|piece| piece.len() == size) {
                free.bytes -= size;
                IDLE.sub(size);
                return Some(Self(Some(free.pieces.swap_remove(found))));
            }
        }
        let piece = MmapMut::map_anon(size).ok()?;
        #[cfg(target_os = "linux")]
        if let Err(error) = piece.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages for blocks");
        }
        Some(Self(Some(piece)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Some(piece) = self.0.take() else { return };
        let mut free = POOL.lock();
        if free.asked && IDLE.add(piece.len()) {
            free.bytes += piece.len();
            free.pieces.push(piece);
        } else {
            // Memory goes back to the system outside of the lock.
            drop(free);
            drop(piece);
        }
    }
}

/// Frees idle memory if none was taken since the last call.
pub(crate) fn shed() {
    let mut free = POOL.lock();
    if !std::mem::take(&mut free.asked) {
        IDLE.sub(std::mem::take(&mut free.bytes));
        let pieces = std::mem::take(&mut free.pieces);
        drop(free);
        drop(pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_writable_and_begins_at_a_page() {
        let mut piece = Mapped::take(5 << 20).unwrap();
        assert_eq!(piece.bytes().len(), 6 << 20);
        assert_eq!(piece.bytes().as_ptr().align_offset(4096), 0);
        piece.bytes_mut().fill(7);
        assert!(piece.bytes().iter().all(|byte| *byte == 7));
        let many: Vec<Mapped> = (0..20).map(|_| Mapped::take(4 << 20).unwrap()).collect();
        drop(many);
        let free = POOL.lock();
        assert_eq!(free.bytes, free.pieces.iter().map(|piece| piece.len()).sum::<usize>());
        assert!(free.bytes <= 32 << 20);
    }
}
