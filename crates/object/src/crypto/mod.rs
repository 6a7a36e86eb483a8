//! Ciphers of the volume format.

/// Cipher of the objects of an encrypted volume; each has a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCipher {
    /// AES-256-GCM: `aes256gcm-rsa`.
    Aes256Gcm,
    /// ChaCha20-Poly1305: `chacha20-rsa`.
    ChaCha20Poly1305,
}
