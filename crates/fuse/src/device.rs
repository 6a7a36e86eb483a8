//! The classic transport: `/dev/fuse`, read with `read(2)` and answered with `writev(2)`.
//!
//! What must stay true: a reply goes to the descriptor from which its request was read. The kernel
//! does not accept it on another one.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno as Os,
    ioctl,
};

use crate::call::{Calls, Channel};

/// Where the kernel's device is.
pub(crate) const DEV_FUSE: &str = "/dev/fuse";
/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// One descriptor of a connection to the kernel.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    calls: Arc<Calls>,
}

/// The result of reading a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing; try again.
    Nothing,
    /// The mount is gone, or the connection was aborted.
    Gone,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd, calls: Arc<Calls>) -> Self {
        Self { fd, calls }
    }

    /// One more descriptor of the same connection, with its own queue of requests under way.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        let fd: OwnedFd = File::options().read(true).write(true).open(DEV_FUSE)?.into();
        clone_connection(&fd, self.fd.as_raw_fd())?;
        Ok(Self { fd, calls: Arc::clone(&self.calls) })
    }

    /// A duplicate of the descriptor: a request that was read from one can be answered on the
    /// other.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Waits for a request. It is always complete.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        match rustix::io::read(self.fd.as_fd(), buffer) {
            Ok(0) | Err(Os::NODEV | Os::CONNABORTED) => Received::Gone,
            Ok(size) => Received::Request(size),
            // ENOENT: its caller was killed while it was read.
            Err(Os::INTR | Os::AGAIN | Os::NOENT) => Received::Nothing,
            Err(why) => {
                tracing::error!("cannot read from {DEV_FUSE}, the mount ends: {why}");
                Received::Gone
            }
        }
    }
}

/// Whether the connection of `device`, a descriptor of the kernel's device, is still mounted and
/// was not aborted.
pub fn is_connected(device: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !(poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::ERR))
}

#[allow(unsafe_code)]
fn clone_connection(fd: &OwnedFd, source: RawFd) -> io::Result<()> {
    // SAFETY: the kernel reads one u32, the source's descriptor, through the pointer that `Setter`
    // passes, and writes nothing.
    unsafe { Ok(ioctl::ioctl(fd, ioctl::Setter::<CLONE, u32>::new(source as u32))?) }
}

impl Channel for Device {
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        loop {
            match rustix::io::writev(self.fd.as_fd(), pieces) {
                Ok(_) => return Ok(()),
                Err(Os::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }
}
