//! A volume without a kernel mount: files by their paths, for users whom the program names.
//!
//! [`Volume`] is a volume that is open in this process, shared by all who use it. [`Volume::fs`]
//! gives an [`Fs`]: the volume as one [`User`] sees it. Its calls block, may come from any thread,
//! and check what a kernel would check for a mount: search permission on each directory of a path,
//! permissions of files when they are opened, the sticky bit, who may see which attributes. The
//! tests compare them with a kernel.
//!
//! Paths are bytes. They begin at the root of the volume, with or without a leading slash, and have
//! the meaning of `path_resolution(7)`. A symbolic link with an absolute target leads to a path of
//! the volume, never out of it. The internal files of a mount (`.stats` and so on) do not exist
//! here; the trash does, as `/.trash`.
//!
//! What must stay true: nothing here trusts that somebody else has checked the caller. Users are
//! asserted by the program, not authenticated.

mod accounts;
mod attrs;
mod error;
mod file;
mod fs;
mod identities;
mod list;
mod names;
mod open_options;
mod path;
mod quotas;
mod rename;
mod resolve;
mod trees;
mod user;
mod volume;
mod xattr;

pub use accounts::{Accounts, Superusers};
pub use error::{Error, Result};
pub use file::File;
pub use fs::{Fs, Stat};
pub use identities::Identities;
pub use list::{Cursor, Item, Page};
pub use open_options::OpenOptions;
pub use quotas::{QuotaLimits, QuotaOwner};
pub use trees::Clone;
pub use user::User;
pub use volume::{Opened, Volume};

pub use sluice_types::{Access, Attr, AttrFlags, FileType, FsError, Ino, Time};
pub use sluice_vfs::{
    AclEntry, AclKind as Acl, AclRule, Denied, Quota, QuotaSet, QuotaUsage, RenameMode, SetTime, Summary,
    VolumeSize, XattrMode,
};
