//! A mounted volume: metadata and data joined into a file system that a kernel, a gateway or a
//! program can use.
//!
//! [`Vfs`] is the entry point. Its calls block, and may come from any number of threads.
//! `sluice-meta` stores names and attributes, `sluice-data` stores bytes. This crate adds open
//! files, handles and consistency.
//!
//! What must stay true: an open of a file sees all data that any client flushed before it.

mod accesslog;
mod attrs;
mod block_hosts;
mod config;
mod control;
mod delete_queue;
mod dir;
mod dispatch;
mod entry;
mod fill_cache;
mod handle_locks;
mod handles;
mod index;
mod internal;
mod internal_files;
mod invalidate;
mod io;
mod jobs;
mod journal;
mod locks;
mod meta_cache;
mod metrics;
mod names;
mod next_commit;
mod notify;
mod observe;
mod observed;
mod open;
mod paths;
mod prefetch;
mod readdir;
mod replay;
mod restore;
mod stats;
mod timed_query;
mod tree_requests;
mod trees;
mod vfs;
mod watch;
mod work;
mod xattr;

pub use attrs::VolumeSize;
pub use config::{AtimeMode, OnEnded, Squash, VfsConfig};
pub use dir::DirItem;
pub use entry::Entry;
pub use index::MetaIndex;
pub use internal::is_reserved;
pub use invalidate::Certainty;
pub use io::Place;
pub use journal::{Journal, JournalError, PreviousState};
pub use locks::Plock;
pub use metrics::{Families, MoreMetrics, OWN_LABELS};
pub use names::NewNode;
pub use observe::{OpKind, describe_attr, describe_entry};
pub use open::Opened;
pub use paths::{Dir, Found, Listed};
pub use restore::Restored;
pub use sluice_meta::schema::Change;
/// Types of the metadata crate that the methods of a [`Vfs`] use.
pub use sluice_meta::{
    Asked, Ended, Interrupt, LOCK_POLL_INTERVAL, Registered,
    engine::Cursor,
    ops::{
        acl::AclKind,
        quota::SetLimits,
        rename::RenameMode,
        setattr::{Changes, SetTime},
        truncate::Allocation,
        walk::Walked,
        xattr::XattrMode,
    },
    quota::{Counting, QuotaSet, Usage as QuotaUsage},
    schema::{AclEntry, AclRule, FlockKind, PlockRange, Quota, QuotaKey},
    tree::{Denied, Summary, SummaryNode},
};
pub use trees::CloneOptions;
pub use vfs::Vfs;
