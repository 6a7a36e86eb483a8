//! A volume that is open in this process.
//!
//! What must stay true: all `Fs` of one volume share its connections, memory and session. The
//! volume is closed when the last of them is dropped, and only in the process that opened it.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt, mem, process,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use sluice_types::{FsResult, wait};
use sluice_vfs::Vfs;

/// Volumes by what they were opened with. A child process does not take those of its parent.
static SHARED: Mutex<BTreeMap<Key, Arc<Slot>>> = Mutex::new(BTreeMap::new());

type Key = (u32, String);
/// Locked while the volume is being opened, so that others wait for it.
type Slot = Mutex<Weak<Volume>>;

/// Something that lives as long as a volume.
type Companion = Option<Arc<dyn Any + Send + Sync>>;

/// The parts of a volume that was opened.
pub struct Opened {
    /// What the volume consists of.
    pub vfs: Arc<Vfs>,
    /// What `vfs` uses, and does not own. It is dropped after `vfs` was closed.
    pub companion: Companion,
}

impl From<Arc<Vfs>> for Opened {
    fn from(vfs: Arc<Vfs>) -> Self {
        Self { vfs, companion: None }
    }
}

/// A volume that is open in this process. When it is dropped, everything that was written is
/// stored, and its session ends.
pub struct Volume {
    vfs: Arc<Vfs>,
    /// What `vfs` uses, and does not own.
    companion: Companion,
    /// The process that opened it.
    process: u32,
    /// Under which others find it.
    key: Option<Key>,
}

impl Volume {
    /// A volume from its opened parts. Nobody but the result may close `vfs`.
    pub fn new(vfs: Arc<Vfs>) -> Arc<Self> {
        Arc::new(Self { vfs, companion: None, process: process::id(), key: None })
    }

    /// The volume that is open under `key`, or else the one that `open` opens: one for each key in
    /// a process. The key has to hold all with which the volume is opened: the address of its
    /// metadata, and the options.
    ///
    /// # Errors
    /// Those of `open`. The next caller tries again.
    pub fn shared<O: Into<Opened>, E>(
        key: impl Into<String>,
        open: impl FnOnce() -> std::result::Result<O, E>,
    ) -> std::result::Result<Arc<Self>, E> {
        let key = (process::id(), key.into());
        let slot = Arc::clone(SHARED.lock().entry(key.clone()).or_default());
        let mut volume = wait::lock(&slot);
        if let Some(open) = volume.upgrade() {
            return Ok(open);
        }
        let opened = open().map(|opened| {
            let Opened { vfs, companion } = opened.into();
            Arc::new(Self { vfs, companion, process: key.0, key: Some(key.clone()) })
        });
        if let Ok(opened) = &opened {
            *volume = Arc::downgrade(opened);
        }
        drop(volume);
        drop(slot);
        if opened.is_err() {
            forget(&key);
        }
        opened
    }

    /// Stores everything that was written to open files.
    ///
    /// # Errors
    /// The first failure. All other data was stored.
    pub fn flush(&self) -> FsResult<()> {
        self.vfs.data().flush_all()
    }

    /// Whether this is the process that opened it, and not a child of it.
    pub(crate) fn is_own(&self) -> bool {
        process::id() == self.process
    }

    /// Name of the volume.
    pub fn name(&self) -> String {
        self.vfs.meta().env().format().name.clone()
    }

    /// What it consists of.
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.is_own() {
            // After a fork: threads and connections are those of the parent.
            mem::forget((Arc::clone(&self.vfs), self.companion.take()));
            return;
        }
        if let Err(error) = wait::apart(|| self.vfs.close(None)) {
            let name = self.name();
            tracing::error!(%error, "not everything that was written to the volume {name} could be stored");
        }
        if let Some(key) = &self.key {
            forget(key);
        }
    }
}

/// Drops the place of a volume that is not open, if nobody is about to open it.
fn forget(key: &Key) {
    let mut shared = SHARED.lock();
    if shared.get(key).is_some_and(|slot| Arc::strong_count(slot) == 1 && slot.lock().strong_count() == 0) {
        shared.remove(key);
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("name", &self.name()).finish_non_exhaustive()
    }
}
