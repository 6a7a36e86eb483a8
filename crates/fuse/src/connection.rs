//! The state of a mount that the successor of a dead mount process needs, in addition to the
//! descriptors.
//!
//! What must stay true: it holds all that was negotiated in INIT, because the kernel does not send
//! it again.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    init::{Features, Negotiated},
    mount,
};

/// A connection to the kernel, as one server passes it to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Bytes, since a path need not be text.
    mountpoint: Vec<u8>,
    device: u32,
    minor: u32,
    features: u64,
    max_write: u32,
    max_readahead: u32,
}

impl Connection {
    pub(crate) fn new(mountpoint: &Path, device: u32, negotiated: &Negotiated) -> Self {
        Self {
            mountpoint: mountpoint.as_os_str().as_bytes().into(),
            device,
            minor: negotiated.minor,
            features: negotiated.features.0,
            max_write: negotiated.max_write,
            max_readahead: negotiated.max_readahead,
        }
    }

    /// Where it is mounted, absolute.
    pub fn mountpoint(&self) -> PathBuf {
        OsString::from_vec(self.mountpoint.clone()).into()
    }

    /// Minor device number, which is the connection's name in `/sys`; 0 if it is unknown.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Whether the kernel sends requests again that were under way when a server died (Linux 6.9).
    /// If not, their callers wait until the connection ends.
    pub fn can_resend(&self) -> bool {
        self.negotiated().features.has(Features::HAS_RESEND)
    }

    /// Whether requests come through `io_uring`. The kernel does not send what was in a ring again.
    /// So a successor cannot take up such a mount: it ends with its server.
    pub fn uses_io_uring(&self) -> bool {
        self.negotiated().features.has(Features::OVER_IO_URING)
    }

    /// Ends it: each request that waits fails, and each later one.
    ///
    /// # Errors
    /// For others than root and the user who mounted.
    pub fn abort(&self) -> io::Result<()> {
        mount::abort(self.device)
    }

    pub(crate) fn negotiated(&self) -> Negotiated {
        Negotiated {
            minor: self.minor,
            features: Features(self.features),
            max_write: self.max_write,
            max_readahead: self.max_readahead,
        }
    }
}
