//! Memory that the kernel writes requests into and reads answers from.
//!
//! What must stay true: the kernel has the address of one mapping, and handlers use a second
//! mapping of the same pages. If a request is answered while its handler still runs, the first
//! mapping gets new pages, and the handler keeps the old ones. So a late handler neither sees nor
//! changes the next request.

#![allow(unsafe_code)]

use std::{io, ptr::NonNull, sync::Arc};

/// Bytes before the payload: the headers, on a page of their own.
pub(crate) const HEADERS: usize = 4096;

/// Shared memory that is unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    length: usize,
    /// What it is a part of. That is unmapped instead.
    whole: Option<Arc<Mapping>>,
}

// SAFETY: it is the address of memory that belongs to no thread. The methods that read and write it
// are unsafe, and their callers say who else uses it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes of zeros. The kernel finds pages for them when they are used.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses an address where nothing is.
        let address = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        Self::at(address, length)
    }

    /// The same pages at another address.
    pub(crate) fn again(&self) -> io::Result<Self> {
        // SAFETY: an old length of 0 leaves this mapping as it is. The kernel chooses an address
        // where nothing is.
        let address = unsafe { libc::mremap(self.address().cast(), 0, self.length, libc::MREMAP_MAYMOVE) };
        Self::at(address, self.length)
    }

    /// Puts new pages at this address, and returns a second mapping of them. Mappings of the old
    /// pages keep those.
    ///
    /// # Errors
    /// Everything is as it was.
    pub(crate) fn renew(&self) -> io::Result<Self> {
        let fresh = Self::new(self.length)?;
        // SAFETY: the range is this mapping, and no reference into it exists: handlers use another
        // one. An old length of 0 leaves `fresh` as it is. The kernel looks whether it may have one
        // more mapping before it removes this one.
        let address = unsafe {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(fresh.address().cast(), 0, self.length, flags, self.address())
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(fresh) }
    }

    fn at(address: *mut libc::c_void, length: usize) -> io::Result<Self> {
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, length, whole: None })
    }

    /// A part of it.
    pub(crate) fn part(self: &Arc<Self>, start: usize, length: usize) -> Self {
        assert!(start <= self.length && length <= self.length - start, "beyond the mapping");
        // SAFETY: it is inside the mapping.
        let address = unsafe { self.address.add(start) };
        Self { address, length, whole: Some(Arc::clone(self)) }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Bytes of it.
    ///
    /// # Safety
    /// Nobody, the kernel included, writes them while the slice is used.
    pub(crate) unsafe fn bytes(&self, start: usize, length: usize) -> &[u8] {
        assert!(start <= self.length && length <= self.length - start, "beyond the mapping");
        // SAFETY: the range is inside the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().add(start), length) }
    }

    /// Copies `bytes` into it, unless they are there already.
    ///
    /// # Safety
    /// Nobody else, the kernel included, uses that range meanwhile.
    pub(crate) unsafe fn write(&self, start: usize, bytes: &[u8]) {
        assert!(start <= self.length && bytes.len() <= self.length - start, "beyond the mapping");
        // SAFETY: the range is inside the mapping. `bytes` may be a part of the same pages.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address.as_ptr().add(start), bytes.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.whole.is_some() {
            return;
        }
        // SAFETY: this owns the mapping, and nobody uses it any more.
        unsafe { libc::munmap(self.address().cast(), self.length) };
    }
}

/// The payload of a request that has none, for the bytes of its answer.
#[derive(Debug)]
pub(crate) struct Room(Arc<Mapping>);

impl Room {
    /// # Safety
    /// Only the handler of the request uses the payload until it is answered.
    pub(crate) unsafe fn new(mapping: Arc<Mapping>) -> Self {
        Self(mapping)
    }

    pub(crate) fn size(&self) -> usize {
        self.0.length() - HEADERS
    }

    /// Puts `bytes` at byte `at`.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: see `new`.
        unsafe { self.0.write(HEADERS + at, bytes) };
    }

    /// The first `length` bytes.
    pub(crate) fn filled(&self, length: usize) -> &[u8] {
        // SAFETY: see `new`.
        unsafe { self.0.bytes(HEADERS, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_leave_the_old_ones_to_whoever_has_them() {
        let kernel = Mapping::new(HEADERS + 4096).expect("map");
        let handler = kernel.again().expect("map again");
        // SAFETY: nobody else knows the memory.
        let first = |mapping: &Mapping| unsafe { mapping.bytes(HEADERS, 3).to_vec() };
        // SAFETY: as above.
        unsafe { kernel.write(HEADERS, b"one") };
        assert_eq!(first(&handler), b"one");
        let next = kernel.renew().expect("renew");
        // SAFETY: as above.
        unsafe { kernel.write(HEADERS, b"two") };
        let seen = [&handler, &kernel, &next].map(first);
        assert_eq!(seen, [b"one".to_vec(), b"two".to_vec(), b"two".to_vec()]);
    }
}
