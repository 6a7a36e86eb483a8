//! Encryption at rest: every object is encrypted before it is stored.
//!
//! What must stay true: the store below gets only sealed bytes, and callers get only authenticated
//! bytes.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::{
    crypto::{CryptoError, ObjectCipher},
    offload::offload,
    store::{ObjectError, ObjectMeta, ObjectStore, unreadable},
};

/// Why a file was not sealed.
enum Unsealed {
    File(ObjectError),
    Cipher(CryptoError),
}

impl From<CryptoError> for Unsealed {
    fn from(error: CryptoError) -> Self {
        Self::Cipher(error)
    }
}

/// A store that holds sealed objects. Sizes in listings are those of the sealed ones.
#[derive(Debug)]
pub struct Encrypted {
    inner: Arc<dyn ObjectStore>,
    cipher: Arc<ObjectCipher>,
}

impl Encrypted {
    /// `inner`, with objects sealed by `cipher`.
    pub fn new(inner: Arc<dyn ObjectStore>, cipher: ObjectCipher) -> Self {
        Self { inner, cipher: Arc::new(cipher) }
    }

    /// Seals or opens; large objects on another thread.
    async fn work(
        &self,
        key: &str,
        data: Bytes,
        work: fn(&ObjectCipher, Bytes) -> Result<Bytes, CryptoError>,
    ) -> Result<Bytes, ObjectError> {
        let cipher = Arc::clone(&self.cipher);
        let (key, store) = (key.to_owned(), self.describe());
        offload(data.len() as u64, move || {
            work(&cipher, data).map_err(|error| ObjectError::Corrupt {
                key,
                store,
                reason: error.to_string(),
            })
        })
        .await
    }

    async fn opened(&self, key: &str, sealed: Bytes) -> Result<Bytes, ObjectError> {
        self.work(key, sealed, ObjectCipher::open).await
    }

    async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ObjectError> {
        let sealed = self.inner.get(key, None).await?;
        let plain = self.opened(key, sealed).await?;
        match range {
            None => Ok(plain),
            Some(range) if range.start <= range.end && range.end <= plain.len() as u64 => {
                Ok(plain.slice(range.start as usize..range.end as usize))
            }
            Some(range) => Err(ObjectError::Corrupt {
                key: key.to_owned(),
                store: self.describe(),
                reason: format!("it has {} bytes, {} to {} were wanted", plain.len(), range.start, range.end),
            }),
        }
    }
}

impl ObjectStore for Encrypted {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn ranged(&self) -> bool {
        false
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(self.read(key, range))
    }

    fn get_whole<'a>(&'a self, key: &'a str, size: u64) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(async move { self.opened(key, self.inner.get_whole(key, size).await?).await })
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            let sealed = self.work(key, data, |cipher, plain| cipher.seal(&plain)).await?;
            self.inner.put(key, sealed).await
        })
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        let (cipher, from) = (Arc::clone(&self.cipher), file.to_owned());
        let (owned, store) = (key.to_owned(), self.describe());
        let seal = move || {
            let unreadable = |error: io::Error| Unsealed::File(unreadable(&from, &error));
            let sealed = File::open(&from).map_err(unreadable).and_then(|mut file| {
                let len = file.metadata().map_err(unreadable)?.len();
                cipher
                    .seal_with(len as usize, |sealed| file.read_to_end(sealed).map(drop).map_err(unreadable))
            });
            sealed.map_err(|unsealed| match unsealed {
                Unsealed::File(error) => error,
                Unsealed::Cipher(error) => {
                    ObjectError::Corrupt { key: owned, store, reason: error.to_string() }
                }
            })
        };
        Box::pin(async move { self.inner.put(key, offload(u64::MAX, seal).await?).await })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        self.inner.sync()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.inner.delete(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.head(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.list(prefix)
    }
}
