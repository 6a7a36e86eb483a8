//! A new file whose data goes to the disk while more is written. The sync at its end then takes
//! little time.

use std::{
    fs::File,
    io::{self, Write},
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

/// Bytes written between two syncs.
const INTERVAL: usize = 1 << 20;

/// The file. Writes fail only for their own reasons: errors of a sync come from [`Self::finish`].
pub(crate) struct SyncedFile {
    file: Arc<File>,
    /// Bytes written since the last sync began.
    unsynced: usize,
    syncs: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl SyncedFile {
    /// Takes an empty file.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let file = Arc::new(file);
        let (syncs, due) = sync_channel(1);
        let synced = file.clone();
        let thread = thread::Builder::new().name("sync".into()).spawn(move || sync(&synced, &due))?;
        Ok(Self { file, unsynced: 0, syncs, thread })
    }

    /// Returns when all that was written is on the disk.
    ///
    /// # Errors
    /// If any of it could not be stored.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.syncs);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        self.file.sync_all()
    }
}

fn sync(file: &File, due: &Receiver<()>) -> io::Result<()> {
    due.iter().try_for_each(|()| file.sync_data())
}

impl Write for SyncedFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = (&*self.file).write(data)?;
        self.unsynced += written;
        // If a sync is still at work, a later write asks again.
        if self.unsynced >= INTERVAL && self.syncs.try_send(()).is_ok() {
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = SyncedFile::new(File::create(&path).unwrap()).unwrap();
        let piece: Vec<u8> = (0..u32::try_from(INTERVAL / 3).unwrap()).map(|n| (n % 251) as u8).collect();
        for _ in 0..10 {
            file.write_all(&piece).unwrap();
        }
        file.finish().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), piece.repeat(10));
    }

    #[test]
    fn an_error_of_a_sync_is_reported() {
        // Nothing can be synced there.
        let (_reader, writer) = io::pipe().unwrap();
        let file = SyncedFile::new(File::from(std::os::fd::OwnedFd::from(writer))).unwrap();
        file.syncs.send(()).unwrap();
        assert!(file.finish().is_err());
    }
}
