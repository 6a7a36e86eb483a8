//! Sluice's own FUSE: the kernel's protocol, mounting, and serving a [`FileSystem`].
//!
//! | module | what |
//! |---|---|
//! | `abi` | the kernel's structures |
//! | `decode`, `args` | a request as an operation |
//! | `filesystem`, `reply`, `errno` | the interface that a file system implements |
//! | `dispatch` | from one to the other |
//! | `call`, `interrupt` | a request under way: answered once, interruptible |
//! | `init` | what kernel and mount agree on |
//! | `device`, `readers`, `wake` | the classic transport and its threads |
//! | `uring`, `memory` | the transport over `io_uring` |
//! | `mount`, `unmount`, `options`, `beneath` | mounting, unmounting, and replacing a dead mount |
//! | `adapter` | a volume as a file system |
//! | `session`, `connection`, `notify` | life of a mount, state for a successor, notifications |
//!
//! What must stay true: no request is left without an answer, and no application hangs for longer
//! than the deadline. Everything from `decode` to `interrupt` knows no transport; each transport
//! has its own `call::Channel` and threads.

mod abi;
mod adapter;
mod args;
mod beneath;
mod call;
mod callbacks;
mod connection;
mod decode;
mod device;
mod dispatch;
mod errno;
mod filesystem;
mod init;
mod interrupt;
mod memory;
mod mount;
mod mount_error;
mod notify;
mod options;
mod readers;
mod reply;
mod request_queue;
mod session;
mod unmount;
mod uring;
mod wake;

pub use adapter::VolumeFs;
pub use args::{
    CopyFileRange, Create, Fallocate, Ioctl, Lock, LockArgs, LockKind, Mknod, Open, Read, Release, Rename,
    SetAttr, SetTime, SetXattr, Timestamp, Write,
};
pub use call::{Reply, Underway};
pub use connection::Connection;
pub use device::is_connected;
pub use errno::{Errno, Result};
pub use filesystem::{FileSystem, ROOT, Request};
pub use init::{Config, Features, Negotiated};
pub use interrupt::{Interrupt, Registration};
pub use mount::{clear_dead, connection_of, is_dead, is_volume_type, remount, types_on};
pub use mount_error::MountError;
pub use notify::Notifier;
pub use options::{BadOption, MountOptions};
pub use reply::{Attr, AttrReply, DirBuffer, DirPlusBuffer, Entry, OpenFlags, Opened, ReadBuffer, Statfs};
pub use session::{Session, SessionHandle};
pub use unmount::unmount;
