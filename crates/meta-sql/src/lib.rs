//! Engines that keep a volume's metadata in the SQL tables of JuiceFS.
//!
//! These modules are shared by all SQL databases: `schema` (tables), `volume` (names),
//! `codec` and `values` (rows), `questions` (reads), `text` (statements), `scan` (pages of large
//! collections), `log` (the change log) and `expected` (expectations of a commit). `plan` orders
//! the work of a commit to PostgreSQL or MySQL by its locks. Each database has a module of its own
//! for connections, statements and errors. What must stay true: every value is stored as JuiceFS
//! would store it, so that both may use one volume at once.

mod codec;
mod expected;
mod log;
mod mysql;
mod plan;
mod postgres;
mod query_runner;
mod questions;
mod scan;
mod schema;
mod sqlite;
mod text;
mod values;
mod volume;

pub use mysql::MysqlEngine;
pub use postgres::PostgresEngine;
pub use sqlite::SqliteEngine;
