//! Objects, keys and secrets that others wrote: a `JuiceFS` volume's objects, and private keys from
//! OpenSSL.
//!
//! `data/vectors.json` and the objects in `data/*vol` were written by `JuiceFS` 1.4.1. The private
//! key was made for them alone and protects nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, path::PathBuf, sync::Arc};

use aws_lc_rs::digest;
use bytes::Bytes;
use sluice_object::{
    Compression, MemStore, ObjectStore as _,
    crypto::{CryptoError, DataCipher, ObjectCipher, VolumeKey, open_secret},
    layers::Encrypted,
};

/// Content of the files that the objects belong to: (objects, SHA-256).
const FILES: [(&[&str], &str); 4] = [
    (&["1_0_13"], "853ff93762a06ddbf722c4ebe9ddd66d8f63ddaea97f521c3ecc20da7c976020"),
    (&["2_0_5000"], "26bf4a8fa1831cb6f5be692ce8babc2b437336ab8b66dac742a79d811fd3c296"),
    (&["22_0_12"], "1b577383bcfb9f191c785497f4ac34a8fb546807bd1094ef65d0ce9a5a63423e"),
    (
        &["21_0_65536", "21_1_65536", "21_2_65536", "21_3_65536", "21_4_37933"],
        "d95995208df176fcddefb69664a69eef8e60c8fa72cd0a7ad1d04d998a27f151",
    ),
];
const PASSPHRASE: &str = "open-sesame";

fn data(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn key(name: &str, passphrase: &str) -> Result<VolumeKey, CryptoError> {
    VolumeKey::from_pem(&String::from_utf8(data(&format!("keys/{name}"))).unwrap(), passphrase)
}

fn plain_key() -> VolumeKey {
    key("pkcs1.pem", "").unwrap()
}

/// Checks every file of a volume; `stored` gives an object's bytes before decompression.
fn check_volume(codec: Compression, stored: impl Fn(&str) -> Bytes) {
    for (objects, sha256) in FILES {
        let mut content = Vec::new();
        for name in objects {
            let length = name.rsplit('_').next().unwrap().parse().unwrap();
            content.extend_from_slice(&codec.decode(stored(name), length).unwrap());
        }
        assert_eq!(hex::encode(digest::digest(&digest::SHA256, &content)), sha256, "{objects:?}");
    }
}

#[test]
fn reads_compressed_volumes() {
    check_volume(Compression::Lz4, |name| data(&format!("lz4vol/{name}")).into());
    check_volume(Compression::Zstd, |name| data(&format!("zstdvol/{name}")).into());
}

#[test]
fn reads_an_encrypted_volume() {
    let cipher = ObjectCipher::new(plain_key(), DataCipher::Aes256Gcm);
    let open = |name: &str| cipher.open(data(&format!("encvol/{name}")).into()).unwrap();
    assert_eq!(open("juicefs_uuid"), "52aab722-fb3f-433c-a612-67716ac2740f");
    check_volume(Compression::Lz4, open);
}

#[test]
fn what_is_sealed_opens_and_no_bit_may_change() {
    for cipher in [DataCipher::Aes256Gcm, DataCipher::ChaCha20Poly1305] {
        let cipher = ObjectCipher::new(plain_key(), cipher);
        for plain in [vec![], vec![1], vec![7; 100_000]] {
            let sealed = cipher.seal(&plain).unwrap();
            assert_eq!(sealed.len(), 3 + 256 + 12 + plain.len() + 16);
            assert_eq!(sealed[..3], [1, 0, 12]);
            assert_ne!(sealed, cipher.seal(&plain).unwrap(), "a fresh key each time");
            assert_eq!(cipher.open(sealed.clone()).unwrap(), plain);
            // Also when somebody else still holds the bytes, which stay as they were.
            assert_eq!(cipher.open(sealed.clone()).unwrap(), plain);
            for at in [0, 1, 2, 3, 200, 259, 270, 271, sealed.len() - 1] {
                let mut changed = sealed.to_vec();
                changed[at] ^= 1;
                let refused = cipher.open(changed.into());
                assert!(matches!(refused, Err(CryptoError::Damaged(_))), "byte {at} changed: {refused:?}");
            }
            for length in [0, 2, 3, 100, 259, 271, sealed.len() - 1] {
                let refused = cipher.open(sealed.slice(..length));
                assert!(matches!(refused, Err(CryptoError::Damaged(_))), "cut to {length}: {refused:?}");
            }
        }
    }
}

#[test]
fn what_is_sealed_is_in_memory_once() {
    let cipher = ObjectCipher::new(plain_key(), DataCipher::Aes256Gcm);
    let mut filled = None;
    let sealed = cipher.seal_with(100_000, |buffer| {
        buffer.resize(buffer.len() + 100_000, 7);
        filled = Some((buffer.as_ptr(), buffer.capacity()));
        Ok::<_, CryptoError>(())
    });
    let sealed = sealed.unwrap();
    assert_eq!(filled, Some((sealed.as_ptr(), sealed.len())), "no other buffer was taken");
    assert_eq!(cipher.open(sealed).unwrap(), vec![7; 100_000]);
    let refused = cipher.seal_with(1, |_| Err(CryptoError::Damaged("told to fail".into())));
    assert_eq!(refused, Err(CryptoError::Damaged("told to fail".into())));
}

#[test]
fn a_file_is_stored_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let plain: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
    fs::write(&file, &plain).unwrap();
    let inner = Arc::new(MemStore::new());
    let cipher = ObjectCipher::new(plain_key(), DataCipher::Aes256Gcm);
    let store = Encrypted::new(Arc::clone(&inner) as _, cipher);
    futures::executor::block_on(async {
        store.put_file("key", &file).await.unwrap();
        assert_eq!(store.get("key", None).await.unwrap(), plain);
        let sealed = inner.get("key", None).await.unwrap();
        assert_eq!(sealed.len(), 3 + 256 + 12 + plain.len() + 16);
        let missing = store.put_file("key", &folder.path().join("missing")).await;
        assert!(missing.unwrap_err().to_string().contains("cannot be read"));
    });
}

#[test]
fn opens_every_form_of_private_key() {
    let sealed = Bytes::from(data("encvol/juicefs_uuid"));
    let works = |key: VolumeKey| ObjectCipher::new(key, DataCipher::Aes256Gcm).open(sealed.clone()).is_ok();
    for name in ["pkcs1.pem", "pkcs8.pem"] {
        assert!(works(key(name, "").unwrap()), "{name}");
        assert!(works(key(name, "needless").unwrap()), "{name}");
    }
    let encrypted = [
        "pkcs1-aes128.pem",
        "pkcs1-aes192.pem",
        "pkcs1-aes256.pem",
        "pkcs1-des3.pem",
        "pkcs8-aes128-sha1.pem",
        "pkcs8-aes256-sha256.pem",
        "pkcs8-des3.pem",
        "pkcs8-scrypt.pem",
    ];
    for name in encrypted {
        assert!(works(key(name, PASSPHRASE).unwrap()), "{name}");
        assert_eq!(key(name, "").unwrap_err(), CryptoError::NeedsPassphrase, "{name}");
        assert_eq!(key(name, "wrong").unwrap_err(), CryptoError::WrongPassphrase, "{name}");
    }
}

#[test]
fn texts_that_are_no_key_are_told() {
    let begin = "-----BEGIN RSA PRIVATE KEY-----";
    let end = "-----END RSA PRIVATE KEY-----";
    for text in ["", "hello", begin, &format!("{begin}\n!!\n{end}"), &format!("{begin}\nMIIB\n{end}")] {
        let error = VolumeKey::from_pem(text, "").unwrap_err();
        assert!(matches!(error, CryptoError::BadKey(_)), "{text:?}: {error}");
    }
}

#[test]
fn reads_secrets_of_settings() {
    let vectors: serde_json::Value = serde_json::from_slice(&data("vectors.json")).unwrap();
    let secrets = vectors["secret_encryption"].as_array().unwrap();
    assert_eq!(secrets.len(), 2);
    for secret in secrets {
        let text = |name: &str| secret[name].as_str().unwrap();
        assert_eq!(open_secret(text("uuid"), text("stored")).unwrap(), text("plaintext"));
    }
}
