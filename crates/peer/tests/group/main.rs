//! Members and clients of a group, on real sockets of this machine.

mod cluster;
mod damage;
mod failures;
mod sharing;
mod unauthenticated;
