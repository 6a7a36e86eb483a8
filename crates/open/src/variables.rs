//! The environment variables that a program passes.

/// Returns the value of an environment variable, by its name. This crate reads no environment
/// variables itself: the program passes those that the crate may use.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;
