//! The answers of one connection: they are gathered, and then sent in one write.
//!
//! What must stay true: a connection that has nothing to send holds no buffer. One whose client
//! does not take its answers holds one buffer.

use std::{
    io::{self, IoSlice},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// Bytes of answers that are gathered before they are sent.
const GATHERED: usize = 256 << 10;
/// Answers of more bytes than this are not gathered.
pub(crate) const COPIED: usize = 64 << 10;
/// Bytes of a buffer: one more answer may follow when it is almost full.
const BUFFER: usize = GATHERED + COPIED + 1024;
/// Buffers that are kept while nobody uses them: one for each thread that serves.
const IDLE: usize = 4;
/// How long the sending of answers may take.
const STALLED: Duration = Duration::from_secs(30);

/// Buffers that all connections share. The one that was used last is used next, because it is in
/// the processor's cache.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_else(|| vec![0; BUFFER])
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut idle = self.0.lock();
        if buffer.len() == BUFFER && idle.len() < IDLE {
            idle.push(buffer);
        }
    }
}

/// Answers that wait to be sent.
pub(crate) struct Outgoing<'s> {
    buffers: &'s Buffers,
    /// Its length is its room, so that no byte of it is cleared twice.
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes that are not copied, and before which byte of the buffer they come.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

impl<'s> Outgoing<'s> {
    pub(crate) fn new(buffers: &'s Buffers) -> Self {
        Self { buffers, buffer: Vec::new(), filled: 0, shared: Vec::new(), shared_bytes: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled + self.shared_bytes == 0
    }

    /// Whether it is time to send.
    pub(crate) fn is_full(&self) -> bool {
        self.filled + self.shared_bytes > GATHERED
    }

    /// Room for so many bytes behind what is here. They are sent if [`Self::add`] is called next.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = self.buffers.take();
        }
        let end = self.filled + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.filled..end]
    }

    /// The buffer, and where room is in it. It may grow.
    pub(crate) fn buffer(&mut self) -> (&mut Vec<u8>, usize) {
        self.room(0);
        (&mut self.buffer, self.filled)
    }

    /// The first bytes of the last [`Self::room`] or [`Self::buffer`] are to be sent.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Copies bytes that are to be sent.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.add(bytes.len());
    }

    /// Bytes that are to be sent and need no copy.
    pub(crate) fn share(&mut self, bytes: Bytes) {
        self.shared_bytes += bytes.len();
        self.shared.push((self.filled, bytes));
    }

    /// Sends all that is here. An error ends the connection.
    ///
    /// # Errors
    /// Those of the connection; [`io::ErrorKind::TimedOut`] if the client does not take it.
    pub(crate) async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        timed(write_all(stream, &mut self.slices())).await?;
        self.clear();
        Ok(())
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.shared.len() + 1);
        let mut at = 0;
        for (before, bytes) in &self.shared {
            slices.push(IoSlice::new(&self.buffer[at..*before]));
            slices.push(IoSlice::new(bytes));
            at = *before;
        }
        slices.push(IoSlice::new(&self.buffer[at..self.filled]));
        slices.retain(|slice| !slice.is_empty());
        slices
    }

    fn clear(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.buffers.give_back(buffer);
        }
        (self.filled, self.shared_bytes) = (0, 0);
        self.shared.clear();
    }
}

async fn write_all(stream: &mut (impl AsyncWrite + Unpin), slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut left = slices;
    while !left.is_empty() {
        match stream.write_vectored(left).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => IoSlice::advance_slices(&mut left, sent),
        }
    }
    stream.flush().await
}

/// Sending that ends in time.
///
/// # Errors
/// Those of the work; [`io::ErrorKind::TimedOut`] if it takes too long.
pub(crate) async fn timed<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(STALLED, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_gathered_arrives_in_order_also_if_the_client_is_slow() {
        let buffers = Buffers::default();
        let mut out = Outgoing::new(&buffers);
        // Less than is sent, so that the sender has to wait.
        let (mut ours, mut theirs) = tokio::io::duplex(1000);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.map(|_| all)
        });
        let mut wanted = Vec::new();
        for round in 0..20_u8 {
            for number in 0..round {
                let part = vec![number; 100 * usize::from(number)];
                wanted.extend_from_slice(&part);
                if number % 3 == 0 {
                    out.share(part.into());
                } else {
                    // What was asked for and is not added is not sent.
                    out.room(part.len() + 10).fill(0xFF);
                    out.copy(&part);
                }
            }
            out.send(&mut ours).await.unwrap();
            assert!(out.buffer.is_empty() && out.shared.is_empty(), "it holds nothing");
        }
        drop(ours);
        assert!(reading.await.unwrap().unwrap() == wanted);
        assert_eq!(buffers.0.lock().len(), 1);
    }

    #[test]
    fn it_is_full_with_what_is_copied_and_what_is_not() {
        let buffers = Buffers::default();
        let mut out = Outgoing::new(&buffers);
        out.copy(&vec![0; GATHERED / 2]);
        out.share(vec![0; GATHERED / 2].into());
        assert!(!out.is_full());
        out.copy(&[0]);
        assert!(out.is_full());
        out.copy(&vec![0; BUFFER]);
        out.clear();
        assert!(buffers.0.lock().is_empty(), "one that grew is not kept");
    }
}
