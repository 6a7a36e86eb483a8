//! How files are opened.
//!
//! What must stay true: options without a meaning are refused, and not guessed at.

use sluice_types::{FsError, FsResult};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of open(2)")]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) mode: u16,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[must_use]
        pub const fn $name(self, $name: bool) -> Self {
            Self { $name, ..self }
        }
    )* };
}

impl OpenOptions {
    /// Options under which nothing is allowed yet.
    pub const fn new() -> Self {
        let (read, write, append, create, create_new, truncate) = (false, false, false, false, false, false);
        Self { read, write, append, create, create_new, truncate, mode: 0o666 }
    }

    flags! {
        /// The content is read.
        read
        /// The content is written.
        write
        /// The content is written, at the end of the file only.
        append
        /// A file that does not exist is made.
        create
        /// The file is made; it is an error if it exists.
        create_new
        /// The file is emptied.
        truncate
    }

    /// Permission bits of a file that is made, before the umask: 0666 by default.
    #[must_use]
    pub const fn mode(self, mode: u16) -> Self {
        Self { mode: mode & 0o7777, ..self }
    }

    /// Whether the content is written at all.
    pub(crate) const fn writes(self) -> bool {
        self.write || self.append
    }

    /// The flags of `open(2)`.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options without a meaning.
    pub(crate) fn flags(self) -> FsResult<i32> {
        let mode = match (self.read, self.writes()) {
            (true, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
            (false, false) => return Err(FsError::Invalid),
        };
        if !self.writes() && (self.create || self.create_new || self.truncate) {
            return Err(FsError::Invalid);
        }
        let bits = [
            (self.append, libc::O_APPEND),
            (self.create || self.create_new, libc::O_CREAT),
            (self.create_new, libc::O_EXCL),
            (self.truncate, libc::O_TRUNC),
        ];
        Ok(bits.into_iter().filter(|(on, _)| *on).fold(mode, |flags, (_, bit)| flags | bit))
    }
}
