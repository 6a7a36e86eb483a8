//! Plans a commit, for databases that run it as statements.
//!
//! A commit says what it expects and what it writes, in any order. [`plan`] returns the work row by
//! row, in the order in which all clients lock, and merges an expectation with the change of the
//! same row. An engine makes statements of each piece of [`Work`]. What must stay true: this
//! depends on a database only through [`Locking`].

mod order;
mod prepared;
mod rows;
mod span;

pub(crate) use order::{Locking, Work, plan};
pub(crate) use rows::{Action, Change, Compare, Held, Lock, Span};
pub(crate) use span::cleared;
