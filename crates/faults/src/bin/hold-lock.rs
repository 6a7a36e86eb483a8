//! A process that holds the write lock of an SQLite database: from its first line of output until
//! its input ends.
//!
//! What must stay true: the transaction of this process is rolled back.

#![allow(clippy::unwrap_used, reason = "a test tool panics when the test fails")]

use std::io::Read as _;

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let database = rusqlite::Connection::open(path).unwrap();
    database.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    database.execute_batch("BEGIN IMMEDIATE; UPDATE jfs_counter SET value = value + 1000").unwrap();
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    database.execute_batch("ROLLBACK").unwrap();
}
