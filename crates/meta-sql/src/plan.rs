//! What a commit does, sorted for databases that take it as statements.
//!
//! A commit says what it expects and what it writes, in any order. [`Prepared`] says per table and
//! unique key what must be there, how the row is to be locked, and how it changes. An engine turns
//! that into its own statements, in its own order of tables. What must stay true: this knows
//! nothing of any one database.

mod prepared;
mod rows;
mod span;

pub(crate) use prepared::Prepared;
pub(crate) use rows::{Action, Change, Compare, Expected, Lock, RowPlan, Span, TablePlan};
pub(crate) use span::{around, cleared};
