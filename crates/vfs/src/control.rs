//! The binary protocol of `.control`.
//!
//! What must stay true: a request is answered exactly once, whatever it says.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_types::Caller;

use crate::{internal::InternalHandle, vfs::Vfs};

/// One open `.control`.
#[derive(Default)]
pub(crate) struct ControlHandle {
    stream: Mutex<Vec<u8>>,
}

impl ControlHandle {
    pub(crate) fn close(&self) {}

    pub(crate) fn read(&self, offset: u64, size: u32) -> Bytes {
        let stream = self.stream.lock();
        let from = (offset as usize).min(stream.len());
        let to = (from + size as usize).min(stream.len());
        Bytes::copy_from_slice(&stream[from..to])
    }
}

impl Vfs {
    pub(crate) fn control(self: &Arc<Self>, _caller: &Caller, handle: &Arc<InternalHandle>, data: &[u8]) {
        if let InternalHandle::Control(control) = &**handle {
            control.stream.lock().extend_from_slice(data);
        }
    }
}
