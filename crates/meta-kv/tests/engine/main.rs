//! The engines on real servers.
//!
//! Names of all these tests begin with `tikv::` or `etcd::`: `make test` leaves them out of the
//! other crates' tests with `--skip` and runs them beside the stages on mounts, since they wait for
//! the servers half of the time.

mod etcd;
mod persist;
#[cfg(feature = "tikv")]
mod tikv;
