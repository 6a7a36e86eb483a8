//! How much memory pools of buffers together may keep while nobody uses it.
//!
//! What must stay true: the pools count every idle buffer here, so that one bound holds for all.

use std::sync::atomic::{AtomicUsize, Ordering};

/// From this size on, the allocator returns freed memory to the system. Smaller buffers are never
/// kept.
pub(crate) const LARGE: usize = 4 << 20;
/// Most bytes of idle buffers, unless [`keep_idle`] says less.
pub(crate) const MOST: usize = 32 << 20;

/// The idle memory of the pools of this process.
pub(crate) static IDLE: Idle = Idle::new();

/// Bounds the bytes of idle buffers of this process, at most 32 MiB. Buffers that are idle already
/// stay. Returns the bound: 0 if no buffer that is kept fits.
pub fn keep_idle(bytes: u64) -> u64 {
    let bound = usize::try_from(bytes).unwrap_or(MOST).min(MOST);
    let bound = if bound < LARGE { 0 } else { bound };
    IDLE.bound.store(bound, Ordering::Relaxed);
    bound as u64
}

/// Bytes of idle buffers, and how many there may be.
pub(crate) struct Idle {
    bytes: AtomicUsize,
    bound: AtomicUsize,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0), bound: AtomicUsize::new(MOST) }
    }

    /// Counts a buffer as idle. Returns whether there is room for it.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        let bound = self.bound.load(Ordering::Relaxed);
        let fits = |idle: usize| (idle + bytes <= bound).then_some(idle + bytes);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Idle buffers of so many bytes are used again, or were freed.
    pub(crate) fn sub(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
