//! End-to-end tests: what an application sees of a mounted volume. Nothing here knows how Sluice
//! works inside; any two directories will do, so the tests are tested on local file systems first.
//!
//! * [`compare`] does the same random operations in two directories and compares all that can be
//!   seen.
//! * [`shared`] writes through one mount and reads through another: close-to-open.
//! * [`crash`] kills a mount under load and checks that all that was fsynced is there.
//! * [`group`] breaks members of a cache group while programs read through it.
//! * [`outage`] breaks servers under load and checks that applications see a delay, and nothing
//!   else.
//! * [`outlive`] kills or upgrades the mount process while programs continue.
//! * [`together`] lets two programs work on one volume at once.
//! * [`notices`] checks that a mount with a client cache sees the changes of another mount.
//! * [`year`] runs a volume for many days of simulated time.
//! * [`mod@bench`] measures Sluice, another program and the limit.
//! * [`transports`] measures FUSE over `io_uring` beside FUSE over `/dev/fuse`.
//! * [`rig`] makes volumes, mounts and the servers that they need.

pub mod bench;
pub mod compare;
pub mod crash;
pub mod group;
pub mod notices;
pub mod outage;
pub mod outlive;
pub mod pattern;
pub mod rig;
pub mod shared;
pub mod together;
pub mod transports;
pub mod year;
