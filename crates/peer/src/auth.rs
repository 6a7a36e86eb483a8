//! How two clients of a group prove to each other that they know the group's key.
//!
//! The member sends a greeting and a nonce. The client sends a nonce and a proof. The member sends
//! a proof. A proof is an HMAC-SHA-256 over the role, both nonces, the volume, the group, and the
//! binding of the connection (what TLS exports; nothing without TLS). What must stay true: before
//! it has verified the client's proof, the member sends only the greeting and its nonce.

use std::{fmt, io, time::Duration};

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac, rand};
use parking_lot::RwLock;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::frame::PROTOCOL;

/// Longest time from a connection to the end of its proofs.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
const GREETING: [u8; 8] = *b"SLUPEER\0";
const NONCE: usize = 32;
const PROOF: usize = 32;

/// A key of the group. Its debug form shows its number alone.
#[derive(Clone)]
pub struct GroupKey {
    /// Later keys have larger numbers.
    pub number: u64,
    key: hmac::Key,
}

impl GroupKey {
    /// From its bytes.
    pub fn new(number: u64, bytes: &[u8]) -> Self {
        Self { number, key: hmac::Key::new(hmac::HMAC_SHA256, bytes) }
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupKey({})", self.number)
    }
}

/// The keys that are valid now, and what they are for.
#[derive(Debug)]
pub struct KeyRing {
    /// The volume's UUID and the name of the group.
    context: Vec<u8>,
    /// The newest first.
    keys: RwLock<Vec<GroupKey>>,
}

impl KeyRing {
    /// The keys of a group of a volume.
    pub fn new(volume: &str, group: &str, keys: Vec<GroupKey>) -> Self {
        let context = [volume.as_bytes(), b"\0", group.as_bytes()].concat();
        let ring = Self { context, keys: RwLock::default() };
        ring.replace(keys);
        ring
    }

    /// Other keys are valid from now on. Connections that were proved stay.
    pub fn replace(&self, mut keys: Vec<GroupKey>) {
        keys.sort_unstable_by_key(|key| std::cmp::Reverse(key.number));
        *self.keys.write() = keys;
    }

    fn at(&self, position: usize) -> Option<GroupKey> {
        self.keys.read().get(position).cloned()
    }

    fn find(&self, number: u64) -> Option<GroupKey> {
        self.keys.read().iter().find(|key| key.number == number).cloned()
    }

    /// How many keys there are.
    pub(crate) fn count(&self) -> usize {
        self.keys.read().len()
    }

    fn proof(&self, key: &GroupKey, role: &[u8], nonces: [&[u8]; 2], binding: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&key.key);
        for part in [role, nonces[0], nonces[1], binding, &self.context] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign()
    }
}

/// Proves to a server that we know the key at `position` of the ring, and has it do the same.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if one of both does not know it; otherwise those of the
/// connection, [`io::ErrorKind::TimedOut`] after five seconds.
pub async fn prove<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ring: &KeyRing,
    position: usize,
    binding: &[u8],
) -> io::Result<()> {
    within(async {
        let mut greeting = [0; GREETING.len() + NONCE];
        stream.read_exact(&mut greeting).await?;
        let (magic, theirs) = greeting.split_at(GREETING.len());
        if magic[..7] != GREETING[..7] || magic[7] != PROTOCOL {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no member of a cache group answers"));
        }
        let key = ring.at(position).ok_or_else(denied)?;
        let ours = nonce()?;
        let proof = ring.proof(&key, b"client", [theirs, &ours], binding);
        let answer = [&key.number.to_le_bytes()[..], &ours, proof.as_ref()].concat();
        stream.write_all(&answer).await?;
        stream.flush().await?;
        let mut said = [0; PROOF];
        stream.read_exact(&mut said).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => denied(),
            _ => error,
        })?;
        let wanted = ring.proof(&key, b"server", [theirs, &ours], binding);
        verify_slices_are_equal(wanted.as_ref(), &said).map_err(|_| denied())
    })
    .await
}

/// Has a client prove that it knows a key of the ring, and does the same.
///
/// # Errors
/// As [`prove`].
pub async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ring: &KeyRing,
    binding: &[u8],
) -> io::Result<()> {
    within(async {
        let ours = nonce()?;
        let mut greeting = [&GREETING[..], &ours].concat();
        greeting[7] = PROTOCOL;
        stream.write_all(&greeting).await?;
        stream.flush().await?;
        let mut said = [0; 8 + NONCE + PROOF];
        stream.read_exact(&mut said).await?;
        let (number, rest) = said.split_at(8);
        let (theirs, proof) = rest.split_at(NONCE);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(number);
        let key = ring.find(u64::from_le_bytes(bytes)).ok_or_else(denied)?;
        let wanted = ring.proof(&key, b"client", [&ours, theirs], binding);
        verify_slices_are_equal(wanted.as_ref(), proof).map_err(|_| denied())?;
        let proof = ring.proof(&key, b"server", [&ours, theirs], binding);
        stream.write_all(proof.as_ref()).await?;
        stream.flush().await
    })
    .await
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Has the cryptographic library collect the randomness that it begins with.
pub(crate) fn prepare() {
    // If it fails, it fails again when a number is needed.
    let _ = nonce();
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    rand::fill(&mut nonce).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(nonce)
}

fn denied() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the key of the cache group is not the same on both sides",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(volume: &str, keys: &[(u64, u8)]) -> KeyRing {
        let keys = keys.iter().map(|(number, byte)| GroupKey::new(*number, &[*byte; 32])).collect();
        KeyRing::new(volume, "g", keys)
    }

    async fn meet(client: &KeyRing, position: usize, server: &KeyRing, bindings: [&[u8]; 2]) -> [bool; 2] {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 10);
        let admit = async {
            let admitted = admit(&mut theirs, server, bindings[1]).await.is_ok();
            drop(theirs);
            admitted
        };
        let (proved, admitted) = tokio::join!(prove(&mut ours, client, position, bindings[0]), admit);
        [proved.is_ok(), admitted]
    }

    #[tokio::test]
    async fn only_who_knows_a_key_of_this_group_on_this_connection_gets_in() {
        let server = ring("v", &[(1, 1), (2, 2)]);
        for (client, position, bindings, wanted) in [
            (ring("v", &[(2, 2)]), 0, [&b""[..], &b""[..]], [true; 2]),
            (ring("v", &[(1, 1)]), 0, [b"t", b"t"], [true; 2]),
            (ring("v", &[(3, 3), (2, 2)]), 1, [b"", b""], [true; 2]),
            (ring("v", &[(3, 3), (2, 2)]), 0, [b"", b""], [false; 2]),
            (ring("v", &[(2, 9)]), 0, [b"", b""], [false; 2]),
            (ring("w", &[(2, 2)]), 0, [b"", b""], [false; 2]),
            (ring("v", &[(2, 2)]), 0, [b"relayed", b"t"], [false; 2]),
        ] {
            assert_eq!(meet(&client, position, &server, bindings).await, wanted, "{client:?} {position}");
        }
        assert!(!format!("{server:?}").contains("[2, 2"), "no key is shown");
    }

    #[tokio::test]
    async fn a_server_that_cannot_prove_itself_is_not_believed() {
        let client = ring("v", &[(1, 1)]);
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 10);
        let pretend = async {
            theirs.write_all(&[&b"SLUPEER\x01"[..], &[7; NONCE]].concat()).await?;
            let mut said = [0; 8 + NONCE + PROOF];
            theirs.read_exact(&mut said).await?;
            // The client's own proof is none of a server.
            theirs.write_all(&said[8 + NONCE..]).await
        };
        let (proved, pretended) = tokio::join!(prove(&mut ours, &client, 0, b""), pretend);
        pretended.expect("it was sent");
        assert_eq!(proved.expect_err("it is refused").kind(), io::ErrorKind::PermissionDenied);
    }
}
