//! The numbers that a mount shows, once they are gathered: written in two forms.
//!
//! `.stats` has a line for each number, and Prometheus its text format. What must stay true: a name
//! keeps its meaning and its type, names, labels and classes that `JuiceFS` has are as there, and
//! numbers that are not counted are left out, not zero.

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
