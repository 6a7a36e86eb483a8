//! What the tests of the other crates share: the conformance suite of the engines, the suite of the
//! operations on them, and the means to make engines fail, wait and be counted. Only tests use it:
//! no crate of the program may depend on it.
//!
//! Everything here reports a fault by panicking, with enough in the message to repeat the run.

#![allow(clippy::missing_panics_doc, reason = "a test tool panics when the test fails")]
#![allow(clippy::unwrap_used, reason = "a test tool panics when the test fails")]

pub mod anomaly;
pub mod conformance;
pub mod disk;
pub mod fuse;
pub mod model;
pub mod operations;
pub mod server;
pub mod wait;
pub mod wrap;
