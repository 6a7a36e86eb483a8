//! The tables are those of JuiceFS, and clients of one volume never wait for each other in a
//! circle.

mod mysql;

use std::sync::Arc;

use mysql::{open, server};
use sluice_meta::{
    engine::{Engine, Found, List, Read},
    schema::{Extra, Key},
};
use sluice_testkit::{
    operations::{SharedStore, quota_stress, stress},
    server::{Mariadb, MariadbOptions},
};

/// A description of all tables, without what the server's defaults decide.
fn described(database: &str) -> String {
    let server = server();
    let columns = format!(
        "SELECT table_name,column_name,ordinal_position,column_type,is_nullable,IFNULL(column_default,'-'),extra \
         FROM information_schema.columns WHERE table_schema='{database}' AND table_name LIKE 'jfs%' ORDER BY 1,3"
    );
    let indexes = format!(
        "SELECT table_name,index_name,non_unique,seq_in_index,column_name FROM information_schema.statistics \
         WHERE table_schema='{database}' AND table_name LIKE 'jfs%' ORDER BY 1,2,4"
    );
    format!("{}\n{}", server.sql(&columns).expect("columns"), server.sql(&indexes).expect("indexes"))
}

#[test]
fn the_tables_are_those_of_juicefs() {
    let (ours, theirs) = (server().database().expect("ours"), server().database().expect("theirs"));
    open(&server().url(&ours)).prepare().expect("prepare");
    let statements = include_str!("fixtures/mariadb.sql");
    server().sql(&format!("USE {theirs}; {statements}")).expect("as JuiceFS makes them");
    assert_eq!(described(&ours), described(&theirs));
    // JuiceFS makes no table for what only Sluice stores.
    let extras = [Read::All(List::Extras(Extra::Member)), Read::Get(Key::Extra(Extra::GroupVersion, 0))];
    let nothing = extras.iter().map(Found::nothing).collect();
    assert_eq!(open(&server().url(&theirs)).read(&extras), Ok(nothing));
    // Theirs lack nothing but our own table.
    open(&server().url(&theirs)).prepare().expect("prepare");
    assert_eq!(described(&ours), described(&theirs), "nothing was altered");
}

#[test]
fn columns_and_indexes_that_are_missing_are_added() {
    let (ours, old) = (server().database().expect("ours"), server().database().expect("old"));
    for database in [&ours, &old] {
        open(&server().url(database)).prepare().expect("prepare");
    }
    let damage = format!(
        "USE {old}; ALTER TABLE jfs_node DROP COLUMN tier_id; DROP TABLE jfs_acl; \
         DROP INDEX IDX_jfs_edge_inode ON jfs_edge"
    );
    server().sql(&damage).expect("as an older version made it");
    open(&server().url(&old)).prepare().expect("prepare");
    assert_eq!(described(&ours), described(&old));
}

/// Whether a deadlock is the only one that Sluice cannot prevent, see `plan/order.rs`: an insert
/// waits for a gap for which another insert, which waits for the first, has asked, too.
fn is_of_two_inserts(report: &str) -> bool {
    let edges = "index UQE_jfs_edge_edge of table ";
    let waits = report.lines().filter(|line| line.starts_with("RECORD LOCKS") && line.ends_with(" waiting"));
    let mut waits: Vec<_> =
        waits.filter_map(|wait| Some((wait.contains(edges), wait.split_once("lock_mode ")?.1))).collect();
    waits.sort_unstable();
    waits == [(true, "X locks gap before rec insert intention waiting"), (true, "X waiting")]
}

/// Quotas, renames across directories, unlinks: what many clients do at once. On a server of their
/// own: others alter tables, which locks what no client of a volume does.
#[test]
fn stress_of_our_own_clients_meets_no_deadlock_but_of_two_inserts() {
    let arguments = vec!["--innodb-print-all-deadlocks=1".into()];
    let server = Mariadb::start(&MariadbOptions { arguments, ..MariadbOptions::default() }).expect("start");
    let fresh = || {
        let url = server.unix_url(&server.database().expect("a database"));
        SharedStore::new(move || Arc::new(open(&url)) as Arc<dyn Engine>)
    };
    stress::stress_leaves_a_tree(&fresh);
    quota_stress::stress_under_nested_quotas_is_counted(&fresh);
    let reports = server.deadlocks().expect("the server's log");
    let count = server.status("Innodb_deadlocks").expect("the server counts");
    assert_eq!(reports.len() as u64, count, "all are in the log");
    for report in &reports {
        assert!(is_of_two_inserts(report), "a deadlock: {report}");
    }
    let commits = server.status("Com_commit").expect("the server counts");
    assert!(count < commits / 200, "{count} deadlocks in {commits} commits");
}
