//! Sealed objects: a wrapped key, a nonce, and the cipher text.
//!
//! What must stay true: the layout is that of the volume format, so that other clients read it:
//! wrapped key length (u16, big endian), nonce length (u8), wrapped key, nonce, cipher text with
//! its tag.

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    rand,
};
use bytes::Bytes;

use super::{CryptoError, DataCipher, VolumeKey};
use crate::buffers;

const KEY: usize = 32;
const NONCE: usize = aead::NONCE_LEN;
const TAG: usize = 16;
/// The two lengths before the wrapped key.
const LENGTHS: usize = 3;

/// Seals and opens whole objects with keys that the volume's key wraps.
#[derive(Debug)]
pub struct ObjectCipher {
    key: VolumeKey,
    cipher: DataCipher,
}

impl ObjectCipher {
    /// Seals with `cipher`; the data keys are wrapped with `key`.
    pub fn new(key: VolumeKey, cipher: DataCipher) -> Self {
        Self { key, cipher }
    }

    /// The stored form of `plain`, with a fresh key and nonce.
    ///
    /// Fails with [`CryptoError::Library`] only.
    pub fn seal(&self, plain: &[u8]) -> Result<Bytes, CryptoError> {
        self.seal_with(plain.len(), |sealed| {
            sealed.extend_from_slice(plain);
            Ok(())
        })
    }

    /// The stored form of the some `len` bytes that `fill` appends to a buffer, where they are
    /// sealed: the format seals an object as a whole, so that all of it has to be in memory, but
    /// only once.
    ///
    /// Fails as `fill` does, and with [`CryptoError::Library`].
    pub fn seal_with<E: From<CryptoError>>(
        &self,
        len: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let (mut key, mut nonce) = ([0; KEY], [0; NONCE]);
        rand::fill(&mut key).and_then(|()| rand::fill(&mut nonce)).map_err(|_| CryptoError::Library)?;
        let wrapped = self.key.wrap(&key)?;
        let start = LENGTHS + wrapped.len() + NONCE;
        let mut sealed = Vec::with_capacity(start + len + TAG);
        sealed.extend_from_slice(&(wrapped.len() as u16).to_be_bytes());
        sealed.push(NONCE as u8);
        sealed.extend_from_slice(&wrapped);
        sealed.extend_from_slice(&nonce);
        fill(&mut sealed)?;
        let tag = self
            .data_key(&key)?
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed[start..],
            )
            .map_err(|_| CryptoError::Library)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed.into())
    }

    /// The content of `sealed`.
    ///
    /// Fails with [`CryptoError::Damaged`] if another key sealed it or any of its bits changed.
    pub fn open(&self, sealed: Bytes) -> Result<Bytes, CryptoError> {
        let damaged = |what: &str| CryptoError::Damaged(format!("cannot decrypt it: {what}"));
        let [high, low, nonce_length, ..] = *sealed else { return Err(damaged("it is too short")) };
        let wrapped_end = LENGTHS + usize::from(u16::from_be_bytes([high, low]));
        let start = wrapped_end + usize::from(nonce_length);
        if sealed.len() < start + TAG {
            return Err(damaged("it is too short"));
        }
        let key = self.key.unwrap(&sealed[LENGTHS..wrapped_end])?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed[wrapped_end..start])
            .map_err(|_| damaged("its nonce is of another length"))?;
        let data_key = self.data_key(&key).map_err(|_| damaged("its key is of another length"))?;
        let mut plain = buffers::take(sealed.len() - start);
        plain.extend_from_slice(&sealed[start..]);
        // Its buffer may be reused from here on.
        drop(sealed);
        let length = data_key
            .open_in_place(nonce, Aad::empty(), &mut plain)
            .map_err(|_| damaged("its authentication fails"))?
            .len();
        plain.truncate(length);
        Ok(buffers::lend(plain))
    }

    fn data_key(&self, key: &[u8]) -> Result<LessSafeKey, CryptoError> {
        let algorithm = match self.cipher {
            DataCipher::Aes256Gcm => &aead::AES_256_GCM,
            DataCipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key).map(LessSafeKey::new).map_err(|_| CryptoError::Library)
    }
}
