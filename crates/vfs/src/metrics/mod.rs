//! The metrics of a mount, written in two formats.
//!
//! `.stats` has a line for each number, and Prometheus has its text format. What must stay true: a
//! name keeps its meaning and its type. Names, labels and histogram buckets that `JuiceFS` has are
//! the same here. Numbers that are not counted are left out, not zero.

mod family;
mod process;
mod text;

pub use family::{Families, MoreMetrics};
pub(crate) use family::{Kind, Labels, Value};
pub(crate) use process::add as add_process;
pub(crate) use text::{prometheus, stats};

/// Labels that single metrics have: the labels of a mount must have other names.
pub const OWN_LABELS: [&str; 9] =
    ["method", "errno", "storage_class", "cause", "subdir", "state", "le", "quantile", "job"];
