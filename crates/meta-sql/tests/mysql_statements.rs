//! Commits keep the contract where they go statement by statement, as they do to MySQL.

mod mysql;

use std::sync::Arc;

use mysql::server;
use sluice_meta::engine::Engine;
use sluice_testkit::conformance::CASES;

#[test]
fn a_list_of_statements_keeps_the_contract() {
    let database = server().database().expect("a database");
    let url = format!("{}?compound=false", server().unix_url(&database));
    mysql::open(&url).prepare().expect("prepare");
    let tables = format!(
        "SELECT GROUP_CONCAT('DELETE FROM {database}.',table_name SEPARATOR ';') FROM information_schema.tables \
         WHERE table_schema='{database}'"
    );
    let empty = server().sql(&format!("SET group_concat_max_len=65536;{tables}")).expect("its tables");
    let fresh = || {
        server().sql(&empty).expect("empty tables");
        Arc::new(mysql::open(&url)) as Arc<dyn Engine>
    };
    let about_commits =
        |name: &str| ["expects::", "preconditions::", "steps::"].iter().any(|of| name.starts_with(of));
    let cases: Vec<_> = CASES.iter().filter(|case| about_commits(case.name)).collect();
    assert!(cases.len() > 20, "{}", cases.len());
    for case in cases {
        eprintln!("{}", case.name);
        (case.run)(&fresh);
    }
}
