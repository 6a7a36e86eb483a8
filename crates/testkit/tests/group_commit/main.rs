//! Group commit keeps its promises over engines that conflict, fail and answer late.

mod batching;
mod faults;
mod fixture;
mod scheduling;
