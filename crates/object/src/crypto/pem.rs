//! The volume's private key, in all common PEM forms.
//!
//! What must stay true: a missing passphrase, a wrong passphrase and a text that is no key are
//! three different errors, and no error shows the key or the passphrase.

use std::fmt;

use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::rsa::{
    OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use cbc::cipher::{BlockDecryptMut, KeyIvInit, block_padding::Pkcs7};
use des::TdesEde3;
use md5::{Digest, Md5};
use pkcs8::{
    AlgorithmIdentifierRef, EncryptedPrivateKeyInfo, ObjectIdentifier, PrivateKeyInfo,
    der::{Decode, Encode, asn1::AnyRef},
};

use super::CryptoError;

/// Label that the volume format gives to wrapped keys.
const LABEL: &[u8] = b"keys";
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// The RSA key that wraps the keys of a volume's objects.
pub struct VolumeKey {
    private: OaepPrivateDecryptingKey,
    public: OaepPublicEncryptingKey,
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeKey({} bits)", self.private.key_size_bits())
    }
}

impl VolumeKey {
    /// Reads an RSA private key of 2048 to 8192 bits: PKCS#1 or PKCS#8, each plain or encrypted
    /// with `passphrase` (empty if there is none; it is ignored if the key is not encrypted).
    pub fn from_pem(text: &str, passphrase: &str) -> Result<Self, CryptoError> {
        let pem = Pem::parse(text)?;
        if pem.encrypted() && passphrase.is_empty() {
            return Err(CryptoError::NeedsPassphrase);
        }
        let key = if pem.label == "ENCRYPTED PRIVATE KEY" {
            let sealed =
                EncryptedPrivateKeyInfo::from_der(&pem.body).map_err(|_| bad("its PKCS#8 is broken"))?;
            let plain = sealed.decrypt(passphrase).map_err(|error| match error {
                pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::UnsupportedAlgorithm { oid }) => {
                    bad(&format!("it is encrypted with an unknown algorithm ({oid})"))
                }
                _ => CryptoError::WrongPassphrase,
            })?;
            private_key(plain.as_bytes())
        } else if let Some((algorithm, iv)) = pem.encryption()? {
            let plain = decrypt_legacy(algorithm, &iv, passphrase, &pem.body)?;
            // With a wrong passphrase, the padding is still valid once in 256 times.
            private_key(&plain).or(Err(CryptoError::WrongPassphrase))
        } else {
            private_key(&pem.body)
        }?;
        let public = OaepPublicEncryptingKey::new(key.public_key()).map_err(|_| CryptoError::Library)?;
        Ok(Self { private: OaepPrivateDecryptingKey::new(key).map_err(|_| CryptoError::Library)?, public })
    }

    /// Wraps a data key.
    pub(super) fn wrap(&self, key: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut wrapped = vec![0; self.public.ciphertext_size()];
        let length = self
            .public
            .encrypt(&OAEP_SHA256_MGF1SHA256, key, &mut wrapped, Some(LABEL))
            .map_err(|_| CryptoError::Library)?
            .len();
        wrapped.truncate(length);
        Ok(wrapped)
    }

    /// Unwraps a data key.
    pub(super) fn unwrap(&self, wrapped: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut key = vec![0; self.private.min_output_size()];
        let length = self
            .private
            .decrypt(&OAEP_SHA256_MGF1SHA256, wrapped, &mut key, Some(LABEL))
            .map_err(|_| {
                CryptoError::Damaged("cannot decrypt it: it was sealed with another private key".into())
            })?
            .len();
        key.truncate(length);
        Ok(key)
    }
}

fn bad(why: &str) -> CryptoError {
    CryptoError::BadKey(why.to_owned())
}

/// From DER, PKCS#1 or PKCS#8, whatever its label says.
fn private_key(der: &[u8]) -> Result<PrivateDecryptingKey, CryptoError> {
    let algorithm = AlgorithmIdentifierRef { oid: RSA_ENCRYPTION, parameters: Some(AnyRef::NULL) };
    let as_pkcs1 = PrivateKeyInfo::new(algorithm, der).to_der().map_err(|_| bad("its DER is broken"))?;
    PrivateDecryptingKey::from_pkcs8(&as_pkcs1)
        .or_else(|_| PrivateDecryptingKey::from_pkcs8(der))
        .map_err(|_| bad("an RSA private key of 2048 to 8192 bits in PEM form is needed"))
}

/// One PEM block.
struct Pem {
    label: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Pem {
    fn parse(text: &str) -> Result<Self, CryptoError> {
        let no_pem = || bad("it is no PEM text (-----BEGIN RSA PRIVATE KEY-----)");
        let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN "));
        let first = lines.next().ok_or_else(no_pem)?;
        let label =
            first.trim_start_matches("-----BEGIN ").strip_suffix("-----").ok_or_else(no_pem)?.to_owned();
        let (mut headers, mut body, mut ended) = (Vec::new(), String::new(), false);
        for line in lines {
            if line.starts_with("-----END ") {
                ended = true;
                break;
            }
            match line.split_once(':') {
                Some((name, value)) => headers.push((name.trim().to_owned(), value.trim().to_owned())),
                None => body.push_str(line),
            }
        }
        if !ended {
            return Err(bad("its PEM text has no end"));
        }
        let body = STANDARD.decode(body).map_err(|_| bad("its PEM text is broken"))?;
        Ok(Self { label, headers, body })
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    fn encrypted(&self) -> bool {
        self.label.starts_with("ENCRYPTED")
            || self.header("Proc-Type").is_some_and(|v| v.contains("ENCRYPTED"))
    }

    /// Algorithm and initialisation vector of a PKCS#1 key encrypted in the old way.
    fn encryption(&self) -> Result<Option<(&str, Vec<u8>)>, CryptoError> {
        if !self.encrypted() {
            return Ok(None);
        }
        let info = self.header("DEK-Info").and_then(|info| info.split_once(','));
        let (algorithm, iv) = info.ok_or_else(|| bad("its DEK-Info is missing or broken"))?;
        let digits = iv.trim().as_bytes().chunks(2);
        let iv: Option<Vec<u8>> =
            digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
        Ok(Some((
            algorithm.trim(),
            iv.filter(|iv| iv.len() >= 8).ok_or_else(|| bad("its DEK-Info is broken"))?,
        )))
    }
}

/// Decrypts as OpenSSL's old PEM encryption does: the key is an MD5 chain over passphrase and salt.
fn decrypt_legacy(algorithm: &str, iv: &[u8], passphrase: &str, body: &[u8]) -> Result<Vec<u8>, CryptoError> {
    fn decrypt<C: KeyIvInit + BlockDecryptMut>(
        key: &[u8],
        iv: &[u8],
        body: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let cipher = C::new_from_slices(key, iv).map_err(|_| bad("its DEK-Info is broken"))?;
        cipher.decrypt_padded_vec_mut::<Pkcs7>(body).map_err(|_| CryptoError::WrongPassphrase)
    }
    let key = |length: usize| {
        let (mut key, mut last) = (Vec::new(), Vec::new());
        while key.len() < length {
            last = Md5::digest([&last, passphrase.as_bytes(), &iv[..8]].concat()).to_vec();
            key.extend_from_slice(&last);
        }
        key.truncate(length);
        key
    };
    match algorithm {
        "AES-128-CBC" => decrypt::<cbc::Decryptor<Aes128>>(&key(16), iv, body),
        "AES-192-CBC" => decrypt::<cbc::Decryptor<Aes192>>(&key(24), iv, body),
        "AES-256-CBC" => decrypt::<cbc::Decryptor<Aes256>>(&key(32), iv, body),
        "DES-EDE3-CBC" => decrypt::<cbc::Decryptor<TdesEde3>>(&key(24), iv, body),
        other => Err(bad(&format!("it is encrypted with {other}; use AES or PKCS#8"))),
    }
}
