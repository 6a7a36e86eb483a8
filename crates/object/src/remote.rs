//! Any store that `OpenDAL` reaches.
//!
//! What must stay true: bytes are returned only if their number is the one that the server
//! announced and the caller requested. An error says what must be done: the key is missing, the
//! configuration is wrong, or the server must recover.

use std::{error::Error, fmt, fs::File, ops::Range, path::Path, time::Duration};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{BoxStream, StreamExt},
};
use opendal::{
    Buffer, Entry, ErrorKind, HttpTransporter, Metadata, OperationContext, Operator,
    layers::{RetryLayer, TimeoutLayer},
};
use opendal_http_transport_reqwest::ReqwestTransport;
use sluice_types::Time;

use crate::{
    buffers,
    config::StoreConfig,
    drivers::Driver,
    offload::offload,
    positional::read_exact_at,
    store::{MAX_OBJECT, ObjectError, ObjectMeta, ObjectStore, PART, too_large, unreadable},
};

/// Time limit of a connect. A dead server should cost less than a try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries for each page of a listing. A listing cannot be restarted after a part of it was returned.
const PAGE_TRIES: usize = 5;
/// Name of an object's metadata that holds the CRC-32C (Castagnoli) of its stored bytes as a
/// decimal number. `JuiceFS` writes and checks it on the same stores.
const CHECKSUM: &str = "Crc32c";
/// Services of `OpenDAL` whose objects carry it.
const WITH_CHECKSUM: [&str; 4] = ["s3", "oss", "cos", "tos"];
/// The server's text in a message is truncated to this many bytes.
const MAX_MESSAGE: usize = 300;

/// A bucket on a server.
pub(crate) struct Remote {
    operator: Operator,
    /// The same with retries of each page.
    listing: Operator,
    name: String,
    /// Whether objects are stored with a checksum.
    checksums: bool,
}

impl fmt::Debug for Remote {
    /// Only the name, because the operators contain the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.name)
    }
}

impl Remote {
    /// The bucket that `config` describes, by `driver`. Sends no request yet.
    pub(crate) fn new(driver: &Driver, config: &StoreConfig) -> Result<Self, ObjectError> {
        let refused = |reason| ObjectError::Config { store: driver.name.to_owned(), reason };
        let address = driver.address(config).map_err(refused)?;
        let operator = driver.build(config, &address).map_err(refused)?;
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .tls_danger_accept_invalid_certs(address.is_on("tls-insecure-skip-verify"))
            .build()
            .map_err(|error| refused(format!("no HTTP client: {}", error.without_url())))?;
        let transport = HttpTransporter::new(ReqwestTransport::new(client));
        let operator = operator.with_context(OperationContext::new().with_http_transport(transport));
        let page = config.retry.get_timeout;
        let listing =
            operator.clone().layer(TimeoutLayer::new().with_timeout(page).with_io_timeout(page)).layer(
                RetryLayer::new()
                    .with_max_times(PAGE_TRIES)
                    .with_min_delay(config.retry.first_pause)
                    .with_max_delay(config.retry.max_pause)
                    .with_jitter(),
            );
        let name = format!("{}://{}/", driver.name, operator.info().name());
        if !config.storage_class.is_empty() && !matches!(operator.info().scheme(), "s3" | "gcs") {
            tracing::warn!(store = %name, class = %config.storage_class, "this driver cannot set a storage class");
        }
        if address.is_plain_by_default() {
            tracing::warn!(
                store = %name,
                "the bucket is reached without TLS, since its address has no scheme; write https:// before it"
            );
        }
        let checksums = WITH_CHECKSUM.contains(&operator.info().scheme());
        Ok(Self { operator, listing, name, checksums })
    }

    fn failed(&self, action: &'static str, key: &str, error: &opendal::Error) -> ObjectError {
        let (key, store) = (key.to_owned(), self.name.clone());
        let words = words(error);
        let refused = |advice: &str| ObjectError::Config {
            store: self.name.clone(),
            reason: format!("cannot {action} {key}: {advice} (the server says: {words})"),
        };
        let denied = |advice: &str| ObjectError::Denied {
            store: self.name.clone(),
            reason: format!("cannot {action} {key}: {advice} (the server says: {words})"),
        };
        match error.kind() {
            _ if mentions(&words, &NO_BUCKET) => {
                refused("there is no such bucket: create it, or correct its name")
            }
            // A wrong clock may be corrected.
            _ if mentions(&words, &WRONG_CLOCK) => ObjectError::Unavailable {
                action,
                key,
                store,
                reason: format!("{words}: is the clock of this machine right?"),
            },
            ErrorKind::NotFound if action == "read" => ObjectError::NotFound { key, store },
            ErrorKind::NotFound => {
                refused("there is no such place: create the bucket, or correct its address")
            }
            ErrorKind::PermissionDenied => denied(
                "access is refused: check the access key, the secret key and what they may do with the bucket",
            ),
            _ if mentions(&words, &BAD_KEY) => {
                denied("the keys are refused: check access key, secret key and token")
            }
            _ if mentions(&words, &ELSEWHERE) => {
                refused("the bucket is in another region: correct its address")
            }
            ErrorKind::ConfigInvalid | ErrorKind::Unsupported => refused("the configuration is refused"),
            ErrorKind::RangeNotSatisfied => ObjectError::Corrupt {
                key,
                store,
                reason: "it ends before the bytes that were wanted".into(),
            },
            // The role of a machine may be available later.
            _ if mentions(&words, &NO_CREDENTIAL) => {
                let reason = format!(
                    "{words}: there is no access key; give --access-key and --secret-key (for a volume, to \
                     `sluice config`), or give the machine a role"
                );
                ObjectError::Unavailable { action, key, store, reason }
            }
            _ => ObjectError::Unavailable { action, key, store, reason: words },
        }
    }

    async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ObjectError> {
        let Some(range) = range else { return self.read_whole(key).await };
        let wanted = range.end.saturating_sub(range.start);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        match self.operator.read_with(key).range(range.clone()).await {
            Ok(data) if data.len() as u64 == wanted => Ok(joined(data)),
            Ok(data) => Err(self.short(key, range, &format!("{} bytes came", data.len())).await),
            Err(error) if error.kind() == ErrorKind::Unexpected && !error.is_temporary() => {
                Err(self.short(key, range, &words(&error)).await)
            }
            Err(error) => Err(self.failed("read", key, &error)),
        }
    }

    /// Reads a whole object: of bounded size, and verified with its checksum, if it has one. Each
    /// piece is copied when it comes: the connection then uses its buffer again, and the bytes are
    /// still in the processor's cache.
    async fn read_whole(&self, key: &str) -> Result<Bytes, ObjectError> {
        let failed = |error| self.failed("read", key, &error);
        let reader = self.operator.reader(key).await.map_err(failed)?;
        let mut stream = reader.clone().into_stream(..).await.map_err(failed)?;
        let (mut data, mut announced, mut sum) = (buffers::Buffer::default(), None, 0);
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(failed)?;
            let len = data.len() + piece.len();
            if len as u64 > MAX_OBJECT {
                return Err(self.damaged(key, &too_large()));
            }
            if data.is_empty() {
                // The answer began, so that its head is known.
                let meta = reader.metadata();
                announced = meta.and_then(checksum);
                let room = meta.map_or(0, |meta| meta.content_length().min(MAX_OBJECT));
                data.make_room(len.max(room as usize));
            }
            if len > data.room() {
                data.make_room(len.max(2 * data.len()));
            }
            for bytes in piece {
                if announced.is_some() {
                    sum = crc32c::crc32c_append(sum, &bytes);
                }
                data.append(&bytes);
            }
        }
        match announced {
            Some(announced) if announced != sum => {
                Err(self.damaged(key, "its bytes do not have the checksum that it was stored with"))
            }
            _ => Ok(data.into()),
        }
    }

    fn damaged(&self, key: &str, reason: &str) -> ObjectError {
        ObjectError::Corrupt { key: key.to_owned(), store: self.name.clone(), reason: reason.to_owned() }
    }

    /// Why an answer was too short: the object itself is too short, or the transfer was
    /// interrupted, which a retry may fix.
    async fn short(&self, key: &str, range: Range<u64>, reason: &str) -> ObjectError {
        let (key, store) = (key.to_owned(), self.name.clone());
        match self.operator.stat(&key).await {
            Ok(meta) if meta.content_length() < range.end => {
                let reason = format!(
                    "it has {} bytes, {} to {} were wanted",
                    meta.content_length(),
                    range.start,
                    range.end
                );
                ObjectError::Corrupt { key, store, reason }
            }
            Ok(_) => ObjectError::Unavailable { action: "read", key, store, reason: reason.to_owned() },
            Err(error) => self.failed("read", &key, &error),
        }
    }
}

/// The checksum that an object was stored with.
fn checksum(meta: &Metadata) -> Option<u32> {
    let mut sums = meta.user_metadata()?.into_iter();
    sums.find_map(|(name, sum)| name.eq_ignore_ascii_case(CHECKSUM).then(|| sum.parse().ok())?)
}

const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"];
const BAD_KEY: [&str; 5] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AuthenticationFailed"];
const WRONG_CLOCK: [&str; 2] = ["RequestTimeTooSkewed", "RequestExpired"];
const NO_CREDENTIAL: [&str; 1] = ["failed to load signing credential"];
const ELSEWHERE: [&str; 3] =
    ["PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"];

fn mentions(words: &str, codes: &[&str]) -> bool {
    codes.iter().any(|code| words.contains(code))
}

/// The server's message and its causes. The address of the request is left out, because it may be
/// signed.
fn words(error: &opendal::Error) -> String {
    let mut words = error.message().trim().to_owned();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = inner.source();
    }
    if words.is_empty() {
        words = error.kind().to_string();
    }
    let end = (0..=MAX_MESSAGE.min(words.len())).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
    words.truncate(end);
    words
}

/// `length` bytes of a file.
async fn part(file: &Path, at: u64, length: u64) -> Result<Bytes, ObjectError> {
    let file = file.to_owned();
    let read = move || {
        let mut data = vec![0; length as usize];
        let filled = File::open(&file).and_then(|open| read_exact_at(&open, &mut data, at));
        filled.map(|()| data.into()).map_err(|error| unreadable(&file, &error))
    };
    offload(length, read).await
}

impl ObjectStore for Remote {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn ranged(&self) -> bool {
        true
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(self.read(key, range))
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            let written = if self.checksums {
                let sum = crc32c::crc32c(&data).to_string();
                self.operator.write_with(key, data).user_metadata([(CHECKSUM.to_owned(), sum)]).await
            } else {
                self.operator.write(key, data).await
            };
            written.map_err(|error| self.failed("write", key, &error))?;
            Ok(())
        })
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            let length = file.metadata().map_err(|error| unreadable(file, &error))?.len();
            if length <= PART {
                return self.put(key, part(file, 0, length).await?).await;
            }
            let failed = |error: &opendal::Error| self.failed("write", key, error);
            let writer = self.operator.writer_with(key).chunk(PART as usize).await;
            let mut writer = writer.map_err(|error| failed(&error))?;
            let written = async {
                for at in (0..length).step_by(PART as usize) {
                    let data = part(file, at, PART.min(length - at)).await?;
                    writer.write(data).await.map_err(|error| failed(&error))?;
                }
                writer.close().await.map_err(|error| failed(&error))?;
                Ok(())
            };
            let written = written.await;
            if written.is_err() {
                // The first error is returned.
                drop(writer.abort().await);
            }
            written
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            match self.operator.delete(key).await {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed("delete", key, &error)),
                _ => Ok(()),
            }
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(async move {
            let meta = self.operator.stat(key).await.map_err(|error| self.failed("read", key, &error))?;
            Ok(described(key.to_owned(), &meta))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        // Stores with real directories can only list directories.
        let directory = prefix.rfind('/').map_or("/", |slash| &prefix[..=slash]);
        let object = move |entry: Entry| {
            let (key, meta) = entry.into_parts();
            (meta.is_file() && key.starts_with(prefix)).then(|| described(key, &meta))
        };
        async_stream::stream! {
            let mut lister = match self.listing.lister_with(directory).recursive(true).await {
                Ok(lister) => lister,
                Err(error) if missing_directory(&error) => return,
                Err(error) => {
                    yield Err(self.failed("list", prefix, &error));
                    return;
                }
            };
            while let Some(entry) = lister.next().await {
                match entry {
                    Ok(entry) => if let Some(meta) = object(entry) { yield Ok(meta) },
                    Err(error) if missing_directory(&error) => return,
                    Err(error) => {
                        yield Err(self.failed("list", prefix, &error));
                        return;
                    }
                }
            }
        }
        .boxed()
    }
}

/// Whether the error means a missing directory, which holds nothing. A missing bucket is another
/// error.
fn missing_directory(error: &opendal::Error) -> bool {
    error.kind() == ErrorKind::NotFound && !mentions(&words(error), &NO_BUCKET)
}

fn described(key: String, meta: &Metadata) -> ObjectMeta {
    let modified = meta.last_modified().map(|time| {
        let since = time.into_inner();
        Time { sec: since.as_second(), nsec: since.subsec_nanosecond().unsigned_abs() }
    });
    ObjectMeta { key, size: meta.content_length(), modified }
}

/// Joins the pieces of a buffer.
fn joined(pieces: Buffer) -> Bytes {
    if pieces.is_empty() {
        // Nothing at all has no first piece.
        return Bytes::new();
    }
    let first = pieces.current();
    if first.len() == pieces.len() {
        return first;
    }
    let mut whole = buffers::take(pieces.len());
    Iterator::for_each(pieces, |piece: Bytes| whole.extend_from_slice(&piece));
    buffers::lend(whole)
}
