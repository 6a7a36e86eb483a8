//! The secrets in a volume's settings, sealed with a key derived from the volume's UUID.
//!
//! What must stay true: other clients of the volume can open what is sealed here. This only
//! protects against accidental display, because the UUID is stored next to the secrets.

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    rand,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};

use super::CryptoError;

/// What dumps write in place of a secret.
const REMOVED: &str = "removed";

/// The stored form of `secret` in the volume `uuid` (its 36 characters). An empty one stays empty.
pub fn seal_secret(uuid: &str, secret: &str) -> Result<String, CryptoError> {
    if secret.is_empty() {
        return Ok(String::new());
    }
    let mut nonce = [0; aead::NONCE_LEN];
    rand::fill(&mut nonce).map_err(|_| CryptoError::Library)?;
    let mut sealed = secret.as_bytes().to_vec();
    let key = key_of(uuid)?;
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed)
        .map_err(|_| CryptoError::Library)?;
    Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
}

/// The secret that `stored` hides in the volume `uuid`. An empty one stays empty.
///
/// Fails with [`CryptoError::Removed`] if a dump took it out, with [`CryptoError::Damaged`] if it
/// was sealed for another volume or changed.
pub fn open_secret(uuid: &str, stored: &str) -> Result<String, CryptoError> {
    let damaged =
        || CryptoError::Damaged("a secret in the settings does not belong to this volume's UUID".into());
    match stored {
        "" => return Ok(String::new()),
        REMOVED => return Err(CryptoError::Removed),
        _ => {}
    }
    let mut sealed = STANDARD.decode(stored).map_err(|_| damaged())?;
    let (nonce, text) = sealed.split_at_mut_checked(aead::NONCE_LEN).ok_or_else(damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
    let plain = key_of(uuid)?.open_in_place(nonce, Aad::empty(), text).map_err(|_| damaged())?;
    String::from_utf8(plain.to_vec()).map_err(|_| damaged())
}

fn key_of(uuid: &str) -> Result<LessSafeKey, CryptoError> {
    let key = Md5::digest(uuid.as_bytes());
    UnboundKey::new(&aead::AES_128_GCM, &key).map(LessSafeKey::new).map_err(|_| CryptoError::Library)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "9bff648a-7eaf-4692-b889-d9334c527967";

    #[test]
    fn what_is_sealed_opens_only_with_its_volume() {
        for text in ["mysecret", "a rather longer secret, with ünicode"] {
            let stored = seal_secret(UUID, text).unwrap();
            assert!(!stored.contains(text), "8 bytes do not turn up in base64 by chance");
            assert_ne!(stored, seal_secret(UUID, text).unwrap(), "a fresh nonce each time");
            assert_eq!(open_secret(UUID, &stored).unwrap(), text);
            let other = open_secret("00000000-7eaf-4692-b889-d9334c527967", &stored).unwrap_err();
            assert!(matches!(other, CryptoError::Damaged(_)), "{other}");
        }
        assert_eq!(seal_secret(UUID, "").unwrap(), "");
        assert_eq!(open_secret(UUID, "").unwrap(), "");
    }

    #[test]
    fn unusable_secrets_say_so() {
        assert_eq!(open_secret(UUID, "removed").unwrap_err(), CryptoError::Removed);
        for text in ["not base64!", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(matches!(open_secret(UUID, text), Err(CryptoError::Damaged(_))), "{text}");
        }
    }
}
