//! Group commit keeps its promises over engines that conflict, fail and answer late.

#![allow(clippy::unwrap_used, reason = "a test may panic wherever it fails")]

mod batching;
mod faults;
mod fenced;
mod fixture;
mod scheduling;
