//! The architecture as a test: what the compiler and clippy do not check of the workspace's rules.
//! Each rule is a function from sources to faults, and each has a test that it finds one.

mod circles;
mod directions;
mod identifiers;
mod paths;
mod prose;
mod sources;
mod style;
mod words;

pub use circles::circles;
pub use directions::{directions, members};
pub use identifiers::identifiers;
pub use prose::widths;
pub use sources::{Source, workspace};
pub use style::{engines_know_records, names, openings, panics, seams, sizes, sleeps, unsafety};
pub use words::words;

/// One broken rule: where, and what to do about it.
pub type Fault = String;
