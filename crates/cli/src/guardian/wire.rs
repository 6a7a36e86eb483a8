//! The messages between guardian and mount process, and the descriptors that are sent with them.
//!
//! What must stay true: the two ends may be different builds. So an unknown message is ignored, and
//! new fields of a message are optional.

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

/// Bytes of the longest message.
const LONGEST: usize = 1 << 16;
/// Descriptors that the kernel lets go with one message.
pub(super) const DESCRIPTORS: usize = 253;

/// A message of either.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// To the mount process: mount, and serve.
    Mount,
    /// To the mount process: get all ready to take up a mount of which this is so. Beside it: the
    /// journal.
    Prepare(Fixed),
    /// To the mount process: take up this mount. Beside it: the journal, and the kernel's device.
    Resume(Connection),
    /// To the mount process: store everything, and end without unmounting, within so many seconds.
    HandOver(u64),
    /// To the mount process: a signal asked for the end.
    End,
    /// Of the mount process: it can take up the mount.
    Prepared,
    /// Of the mount process: it serves. Beside it: the journal, and the kernel's device.
    Ready(Connection, Fixed),
    /// Of the mount process: it cannot hand over, and serves on.
    Refused(String),
    /// Of the mount process: why it ends, and whether that is an engine that cannot be reached.
    Failed(String, bool),
}

/// Sends a message.
pub(super) fn send(to: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    send_bytes(to, &text, fds)
}

/// Sends bytes with descriptors.
pub(super) fn send_bytes(to: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    loop {
        match sendmsg(&to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// The next message and the descriptors that came with it; `None` at the end.
pub(super) fn receive(from: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let (size, fds) = receive_bytes(&from, &mut buffer)?;
        if size == 0 {
            return Ok(None);
        }
        match serde_json::from_slice(&buffer[..size]) {
            Ok(message) => return Ok(Some((message, fds))),
            Err(why) => tracing::warn!("guardian and mount process do not understand each other: {why}"),
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
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((size, fds.flatten().collect()))
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
        send(&ours, &Message::HandOver(7), &[writer.as_fd(), writer.as_fd()]).expect("sent");
        drop(writer);
        drop(ours);
        let (message, mut fds) = receive(&theirs).expect("received").expect("a message");
        assert!(matches!(message, Message::HandOver(7)), "{message:?}");
        assert_eq!(fds.len(), 2);
        io::Write::write_all(&mut File::from(fds.remove(0)), b"hello").expect("written");
        drop(fds);
        let mut said = String::new();
        { reader }.read_to_string(&mut said).expect("read");
        assert_eq!(said, "hello");
        assert!(receive(&theirs).expect("the end").is_none());
    }
}
