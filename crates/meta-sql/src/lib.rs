//! Engines that keep a volume's metadata in SQL tables, laid out as JuiceFS lays them out.
//!
//! `schema` has the tables, `naming` what they are called, `codec` and `values` the rows,
//! `questions` the reads, `scan` the pages of large collections and `expected` what a commit rests
//! on: these are shared by all SQL databases. `text` has the statements of those that prepare
//! theirs. `plan` says what a commit to PostgreSQL or MySQL does, in the order in which it locks.
//! Each database has a module of its own for what differs: connections, the text of its statements,
//! its errors. What must stay true: every value is stored as JuiceFS would store it, so that both
//! may use one volume at once.

mod codec;
mod errors;
mod expected;
mod mysql;
mod naming;
mod plan;
mod polled;
mod postgres;
mod questions;
mod scan;
mod schema;
mod sqlite;
mod text;
mod values;

pub use mysql::MysqlEngine;
pub use postgres::PostgresEngine;
pub use sqlite::SqliteEngine;
