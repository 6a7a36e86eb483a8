//! Ways to the server: sockets, passwords, encryption, poolers.

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Hold, Read, Write},
    schema::{Counter, Key},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::server::{Postgres, PostgresOptions, Proxy};
use sluice_types::Ino;

use super::{commit, dir, get, open};

fn is_served(url: &str) {
    let engine = open(url);
    commit(&engine, vec![Write::Put(dir(5))]).expect(url);
    assert_eq!(get(&engine, Key::Node(Ino(5))).expect(url), Some(dir(5)), "{url}");
}

#[test]
fn passwords_of_all_kinds() {
    let options =
        PostgresOptions { settings: vec!["password_encryption=md5".into()], ..PostgresOptions::default() };
    let server = Postgres::start(&options).expect("a server");
    let database = server.database().expect("a database");
    is_served(&server.url(&database));
    is_served(&server.unix_url(&database));
    let hba = server.dir().join("data/pg_hba.conf");
    for (method, user) in [("md5", "m"), ("password", "p")] {
        let made = format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'p@ss:w/rd'");
        server.sql_in(&database, &made).expect("a role");
        let rule = format!("local all sluice trust\nhost all {user} 127.0.0.1/32 {method}\n");
        std::fs::write(&hba, rule).expect("written");
        server.sql_in(&database, "SELECT pg_reload_conf()").expect("reloaded");
        is_served(&server.url(&database).replace("sluice:", &format!("{user}:")));
    }
}

#[test]
fn encryption_proves_what_it_is_asked_to() {
    let server =
        Postgres::start(&PostgresOptions { tls: true, ..PostgresOptions::default() }).expect("a server");
    let database = server.database().expect("a database");
    let plain = server.url(&database);
    let by = |host: &str, mode: &str| plain.replace("127.0.0.1", host).replace("sslmode=disable", mode);
    let root = format!("&sslrootcert={}", server.dir().join("ca.pem").display());
    for url in [
        by("127.0.0.1", "sslmode=prefer"),
        by("127.0.0.1", "sslmode=require"),
        by("127.0.0.1", &format!("sslmode=verify-ca{root}")),
        by("localhost", &format!("sslmode=verify-full{root}")),
    ] {
        is_served(&url);
        let encrypted = format!("{url}&application_name=looked_for");
        let engine = open(&encrypted);
        get(&engine, Key::Node(Ino(5))).expect("up");
        let asked = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING(pid) \
             WHERE application_name='looked_for'";
        assert_eq!(server.sql_in(&database, asked).expect("an answer"), "t", "{url}");
    }
    for url in [
        // The system's authorities do not know it, and the certificate names localhost.
        by("localhost", "sslmode=verify-full"),
        by("127.0.0.1", "sslmode=verify-ca"),
        by("127.0.0.1", &format!("sslmode=verify-full{root}")),
    ] {
        let refused = PostgresEngine::open(&url).and_then(|engine| engine.prepare());
        let Err(EngineError::Refused { reason, .. }) = refused else { panic!("{url}: {refused:?}") };
        assert!(reason.contains("certificate"), "{reason}");
    }
    let unencrypted = Postgres::start(&PostgresOptions::default()).expect("a server");
    let url = unencrypted.url("postgres").replace("sslmode=disable", "sslmode=require");
    let refused = PostgresEngine::open(&url).and_then(|engine| engine.prepare());
    assert!(
        matches!(&refused, Err(EngineError::Refused { reason, .. }) if reason.contains("ssl=on")),
        "{refused:?}"
    );
}

#[test]
fn statements_need_not_stay_prepared() {
    let server = sluice_testkit::server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let url = format!("{}&default_query_exec_mode=exec", server.unix_url(&database));
    is_served(&url);
    let engine = open(&format!("{}&max_open_conns=1", server.unix_url(&database)));
    commit(&engine, vec![Write::Put(dir(6))]).expect("up");
    // As a pooler between us and the server may do it.
    let names = "SELECT count(*) FROM pg_stat_activity WHERE application_name='sluice'";
    assert_ne!(server.sql_in(&database, names).expect("a number"), "0");
}

#[test]
fn a_trip_is_one_message_each_way() {
    let server = sluice_testkit::server::postgres().expect("a server");
    let proxy = Proxy::start(server.addr()).expect("a proxy");
    let url = server.url_at(proxy.addr(), &server.database().expect("a database"));
    let engine = open(&format!("{url}&max_open_conns=1"));
    let rows = |first: u64| (first..first + 20).map(|ino| Write::Insert(dir(ino))).collect::<Vec<_>>();
    let reads: Vec<Read> = (0..50).map(|ino| Read::Get(Key::Node(Ino(ino)))).collect();
    // The first of each kind finds a connection to be made.
    commit(&engine, rows(0)).expect("up");
    for statements_are_new in [true, false] {
        let before = (proxy.requests(), proxy.answers());
        engine.read(&reads[..if statements_are_new { 1 } else { 2 }]).expect("up");
        engine.read(&reads).expect("up");
        let expects = vec![Expect::Row(dir(3), Hold::Lock), Expect::Row(dir(5), Hold::Guard)];
        let mut writes = rows(if statements_are_new { 100 } else { 200 });
        writes.push(Write::Bump { ino: Ino(5), nlink: 0, time: None });
        writes.push(Write::Count(Counter::UsedSpace, 1));
        engine.commit(&Commit { step: None, expects, writes }).expect("it holds");
        let now = (proxy.requests(), proxy.answers());
        assert_eq!((now.0 - before.0, now.1 - before.1), (3, 3));
    }
}
