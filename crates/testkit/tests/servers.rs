//! The servers and the proxy do what tests rely on.

#![allow(clippy::unwrap_used, reason = "a test may panic wherever it fails")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use sluice_testkit::server::{Behaviour, Proxy, Redis, RedisOptions};

fn ask(stream: &mut TcpStream, command: &str) -> std::io::Result<String> {
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = [0; 1000];
    match stream.read(&mut answer)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        length => Ok(String::from_utf8_lossy(&answer[..length]).trim().into()),
    }
}

fn connect(addr: std::net::SocketAddr, timeout: Duration) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(timeout)).unwrap();
    stream
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_durable_server_keeps_its_data_over_a_crash() {
    if !Redis::is_installed() {
        eprintln!("skipped: redis-server is not installed");
        return;
    }
    let mut redis = Redis::start(RedisOptions { durable: true, ..RedisOptions::default() }).unwrap();
    assert!(redis.command(&["SET", "key", "value"]).unwrap().starts_with(b"+OK"));
    let (addr, pid) = (redis.addr(), redis.pid());
    redis.restart().unwrap();
    assert_eq!(redis.addr(), addr);
    assert_ne!(redis.pid(), pid);
    assert_eq!(redis.command(&["GET", "key"]).unwrap(), b"$5\r\nvalue\r\n");
    let socket = redis.socket();
    drop(redis);
    assert!(!socket.exists());
}

#[test]
fn the_proxy_delays_swallows_cuts_and_partitions() {
    if !Redis::is_installed() {
        eprintln!("skipped: redis-server is not installed");
        return;
    }
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(redis.addr()).unwrap();
    let mut client = connect(proxy.addr(), LONG);
    assert_eq!(ask(&mut client, "INCR n").unwrap(), ":1");

    proxy.set(Behaviour { request_delay: SHORT, answer_delay: SHORT, ..Behaviour::default() });
    let start = Instant::now();
    assert_eq!(ask(&mut client, "INCR n").unwrap(), ":2");
    assert!(start.elapsed() >= 2 * SHORT);

    proxy.set(Behaviour { drop_answers: true, ..Behaviour::default() });
    let mut deaf = connect(proxy.addr(), SHORT);
    assert!(ask(&mut deaf, "INCR n").is_err(), "the answer was swallowed");
    proxy.heal();
    assert_eq!(proxy.swallowed(), 1);
    assert_eq!(redis.command(&["GET", "n"]).unwrap(), b"$1\r\n3\r\n", "the request was not");

    proxy.cut_before_next_answer();
    assert!(ask(&mut client, "INCR n").is_err(), "cut");
    assert!(!proxy.is_cut_pending());
    assert_eq!(redis.command(&["GET", "n"]).unwrap(), b"$1\r\n4\r\n", "it happened");

    let mut client = connect(proxy.addr(), LONG);
    assert_eq!(ask(&mut client, "PING").unwrap(), "+PONG");
    proxy.reset();
    assert!(ask(&mut client, "PING").is_err(), "reset");

    let mut client = connect(proxy.addr(), SHORT);
    assert_eq!(ask(&mut client, "PING").unwrap(), "+PONG");
    proxy.set(Behaviour { partition: true, ..Behaviour::default() });
    assert!(ask(&mut client, "INCR n").is_err(), "nothing arrives");
    assert_eq!(redis.command(&["GET", "n"]).unwrap(), b"$1\r\n4\r\n", "in neither direction");
    proxy.heal();
    client.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(
        ask(&mut client, "PING").unwrap().split_whitespace().next(),
        Some(":5"),
        "held back, then delivered"
    );

    proxy.set(Behaviour { refuse: true, ..Behaviour::default() });
    let mut refused = connect(proxy.addr(), LONG);
    assert!(ask(&mut refused, "PING").is_err());
}
