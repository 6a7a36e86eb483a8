//! What the environment of a program says.

/// The environment variables of the program, by name. This crate reads no environment: the program
/// says what it allows to be seen.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;
