//! The tables are those of JuiceFS, and clients of one volume never wait for each other in a
//! circle.

mod mysql;

use std::sync::Arc;

use mysql::{open, server};
use sluice_meta::engine::Engine;
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

/// Quotas, renames across directories, unlinks: what many clients do at once. On a server of their
/// own: others alter tables, which locks what no client of a volume does.
#[test]
fn stress_of_our_own_clients_meets_no_deadlock() {
    let server = Mariadb::start(&MariadbOptions::default()).expect("start");
    let before = server.status("Innodb_deadlocks").expect("the server counts");
    let fresh = || {
        let url = server.unix_url(&server.database().expect("a database"));
        SharedStore::new(move || Arc::new(open(&url)) as Arc<dyn Engine>)
    };
    stress::stress_leaves_a_tree(&fresh);
    quota_stress::stress_under_nested_quotas_is_counted(&fresh);
    let after = server.status("Innodb_deadlocks").expect("the server counts");
    let last = || server.sql("SHOW ENGINE INNODB STATUS").unwrap_or_default().replace("\\n", "\n");
    assert_eq!(after - before, 0, "deadlocks, the last of them:\n{}", last());
}
