//! What guardian and server say to each other, with descriptors beside it.
//!
//! What must stay true: either end may be of another build. So a word that is not understood is
//! skipped, and what is new in one is optional.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize};
use sluice_fuse::Connection;

use crate::fixed::Fixed;

/// Bytes of the longest word.
const LONGEST: usize = 1 << 16;
/// Descriptors that the kernel lets go with one message.
pub(super) const DESCRIPTORS: usize = 253;

/// A word of either.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// To the server: mount, and serve.
    Mount,
    /// To the server: get all ready to take up a mount of which this is so. Beside it: the journal.
    Prepare(Fixed),
    /// To the server: take up this mount. Beside it: the journal, and the kernel's device.
    Resume(Connection),
    /// To the server: store everything, and end without unmounting, within so many seconds.
    HandOver(u64),
    /// To the server: a signal asked for the end.
    End,
    /// Of the server: it can take up the mount.
    Prepared,
    /// Of the server: it serves. Beside it: the journal, and the kernel's device.
    Ready(Connection, Fixed),
    /// Of the server: it cannot hand over, and serves on.
    Refused(String),
    /// Of the server: why it ends, and whether that is an engine that cannot be reached.
    Failed(String, bool),
}

/// Says a word.
pub(super) fn send(to: impl AsFd, word: &Word, beside: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(word)?;
    send_bytes(to, &text, beside)
}

/// Sends bytes with descriptors.
pub(super) fn send_bytes(to: impl AsFd, bytes: &[u8], beside: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !control.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    loop {
        match sendmsg(&to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// The next word and what came beside it; `None` at the end.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let (size, beside) = receive_bytes(&from, &mut buffer)?;
        if size == 0 {
            return Ok(None);
        }
        match serde_json::from_slice(&buffer[..size]) {
            Ok(word) => return Ok(Some((word, beside))),
            Err(why) => tracing::warn!("guardian and server do not understand each other: {why}"),
        }
    }
}

/// Receives bytes with descriptors.
pub(super) fn receive_bytes(from: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let size = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    };
    let beside = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((size, beside.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _, os::fd::AsFd};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_word_comes_with_its_descriptors_and_unknown_ones_are_skipped() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("pair");
        let (reader, writer) = io::pipe().expect("pipe");
        send_bytes(&ours, br#""SomethingNew""#, &[]).expect("sent");
        send(&ours, &Word::HandOver(7), &[writer.as_fd(), writer.as_fd()]).expect("sent");
        drop(writer);
        drop(ours);
        let (word, mut beside) = receive(&theirs).expect("received").expect("a word");
        assert!(matches!(word, Word::HandOver(7)), "{word:?}");
        assert_eq!(beside.len(), 2);
        io::Write::write_all(&mut File::from(beside.remove(0)), b"hello").expect("written");
        drop(beside);
        let mut said = String::new();
        { reader }.read_to_string(&mut said).expect("read");
        assert_eq!(said, "hello");
        assert!(receive(&theirs).expect("the end").is_none());
    }
}
