//! Ciphers of the volume format: objects at rest, the volume's private key, and the secrets in its
//! settings.
//!
//! What must stay true: every object and every secret is encrypted with its own nonce. Bytes that
//! fail authentication are never returned.

mod object;
mod pem;
mod secret;

use std::str::FromStr;

pub use object::ObjectCipher;
pub use pem::VolumeKey;
pub use secret::{open_secret, seal_secret};

/// Errors of keys and sealed bytes. They contain no key and no plain text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The PEM text is not a private key that can be used.
    #[error("the volume's private key cannot be used: {0}")]
    BadKey(String),
    /// The private key is encrypted and no passphrase was given.
    #[error("the volume's private key is encrypted: give its passphrase in JFS_RSA_PASSPHRASE")]
    NeedsPassphrase,
    /// The passphrase does not open the private key.
    #[error("the passphrase does not open the volume's private key: check JFS_RSA_PASSPHRASE")]
    WrongPassphrase,
    /// Sealed bytes that this key did not seal, or that changed since.
    #[error("{0}")]
    Damaged(String),
    /// A secret that was taken out of a dump.
    #[error("the secret was removed from the dump: set it again with `config`")]
    Removed,
    /// A cipher that is not implemented.
    #[error("unknown cipher {0:?}: use aes256gcm-rsa or chacha20-rsa")]
    UnknownCipher(String),
    /// The library could not do it, for want of memory or randomness.
    #[error("the cipher library failed")]
    Library,
}

/// Cipher of the objects of an encrypted volume; each object has a key of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataCipher {
    /// AES-256-GCM: `aes256gcm-rsa`.
    #[default]
    Aes256Gcm,
    /// ChaCha20-Poly1305: `chacha20-rsa`.
    ChaCha20Poly1305,
}

impl FromStr for DataCipher {
    type Err = CryptoError;

    /// From the name in a volume's settings; an empty one means AES.
    fn from_str(name: &str) -> Result<Self, CryptoError> {
        match name {
            "" | "aes256gcm-rsa" => Ok(Self::Aes256Gcm),
            "chacha20-rsa" => Ok(Self::ChaCha20Poly1305),
            other => Err(CryptoError::UnknownCipher(other.to_owned())),
        }
    }
}
