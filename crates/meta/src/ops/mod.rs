//! The operations of the file system, one file each (or one family), written once for all engines.
//!
//! Each is a value whose `run` is a pure function of what it sees. It requests all records that it
//! needs first in one `want`. If a record must not change before the commit, it reads it with
//! `Hold::Guard` or `Hold::Lock`, and a comment says why.

pub mod acl;
pub mod allocate;
pub mod backup;
pub mod chunks;
pub mod clone;
pub mod compact;
pub mod copy_range;
pub mod create;
pub mod flock;
pub mod getattr;
pub mod group;
pub mod link;
pub mod lookup;
pub mod plock;
pub mod quota;
pub mod reach;
pub mod readlink;
pub mod removal;
pub mod rename;
pub mod report;
pub mod rmdir;
pub(crate) mod rules;
pub mod session;
pub mod setattr;
pub mod setting;
pub mod sustained;
pub mod touch;
pub mod tree_usage;
pub mod truncate;
pub mod unlink;
pub mod walk;
pub mod ways;
pub mod write;
pub mod xattr;
