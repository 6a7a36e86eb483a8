//! Metrics that are sent: to a Pushgateway and to Graphite, both played by this test.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use sluice_testkit::fuse::no_fuse;

use crate::support::{TIMEOUT, Volume, fails, until};

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("somebody");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream
}

/// Head and body of one request, which is answered so.
fn request(listener: &TcpListener, answer: &str) -> (String, String) {
    let mut stream = accept(listener);
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).expect("read");
        assert!(n > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
        if body.len() >= length.parse().expect("a number") {
            write!(stream, "HTTP/1.0 {answer}\r\n\r\n").expect("answered");
            return (head.to_owned(), body.to_owned());
        }
    }
}

#[test]
fn metrics_are_sent_again_and_again() {
    if no_fuse() {
        return;
    }
    let (gateway, at) = listen();
    let (graphite, plain) = listen();
    let pushed = thread::spawn(move || {
        // A destination that fails once is tried again.
        let refused = request(&gateway, "500 No");
        (refused, request(&gateway, "202 Accepted"))
    });
    let sent = thread::spawn(move || {
        drop(accept(&graphite));
        let mut text = String::new();
        accept(&graphite).read_to_string(&mut text).expect("read");
        text
    });
    let mut volume = Volume::new(&[]);
    let flags = ["--metrics", "", "--push-gateway", &at, "--push-auth", "me:hush", "--push-graphite", &plain];
    let point =
        volume.mount("mnt", &[&flags[..], &["--push-interval", "1s", "--push-labels", "team:a b"]].concat());
    let ((first, _), (head, body)) = pushed.join().expect("pushed");
    assert_eq!(first.lines().next(), head.lines().next());
    let line = head.lines().next().expect("a line");
    assert!(line.starts_with("PUT /metrics/job/juicefs/") && line.ends_with(" HTTP/1.0"), "{line}");
    assert!(line.contains("/vol_name/testvol") && line.contains("/team@base64/YSBi"), "{line}");
    assert!(head.contains("Authorization: Basic bWU6aHVzaA=="), "{head}");
    let sample = body.lines().find(|line| line.starts_with("juicefs_used_inodes{")).expect("a sample");
    assert!(sample.contains("juicefs_version=") && !sample.contains("vol_name="), "{sample}");
    let text = sent.join().expect("sent");
    let sample = text.lines().find(|line| line.starts_with("juicefs_used_inodes;")).expect("a sample");
    assert!(sample.contains(";vol_name=testvol") && sample.contains(";team=a_b"), "{sample}");
    assert!(sample.contains(&format!(";mp={}", point.display())), "{sample}");
    let words: Vec<&str> = sample.split(' ').collect();
    assert!(words.len() == 3 && words[2].parse::<i64>().is_ok_and(|time| time > 1_700_000_000), "{sample}");
    until("both to be reported", || {
        let log = volume.log();
        log.contains("answers 500") && log.contains("sent to the Pushgateway again")
    });
    assert!(!volume.log().contains("hush"));
}

#[test]
fn wrong_destinations_are_refused() {
    for (flags, expected) in [
        (&["--push-gateway", "nonsense"][..], "HOST:PORT"),
        (&["--push-graphite", ":2003"], "HOST:PORT"),
        (&["--push-gateway", "h:1", "--push-interval", "10ms"], "at least 1s"),
        (&["--push-auth", "me:hush"], "--push-gateway"),
        (&["--push-gateway", "h:1", "--push-auth", "me"], "USER:PASSWORD"),
    ] {
        let said = fails(&[&["mount"], flags, &["sqlite3:///nowhere/meta.db", "/nowhere"]].concat());
        assert!(said.contains(expected), "{said}");
    }
}
