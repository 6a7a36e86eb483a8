//! What a commit does, for databases that take it as statements.
//!
//! A commit says what it expects and what it writes, in any order. [`plan`] says what is to be
//! done, row by row in the order in which all clients lock, and merges an expectation with the
//! change of the same row. An engine turns each piece of [`Work`] into statements of its own. What
//! must stay true: this knows nothing of any one database but what [`Locking`] says.

mod order;
mod prepared;
mod rows;
mod span;

pub(crate) use order::{Locking, Work, plan};
pub(crate) use rows::{Action, Change, Compare, Held, Lock, Span};
pub(crate) use span::cleared;
