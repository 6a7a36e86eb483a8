//! The command `console`: what it prints, what it keeps to itself, and what mounts say for it.

mod support;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_testkit::fuse::no_fuse;
use support::{TIMEOUT, Volume, ends_well, fails, sluice, until};

/// A console that runs, and ends with the test.
struct Console {
    child: Child,
    address: String,
    login: String,
    token: String,
}

impl Console {
    fn start(urls: &[&str], token: Option<&str>) -> Self {
        let mut command = sluice();
        command.args(["console", "--listen", "127.0.0.1:0"]).args(urls).stdout(Stdio::piped());
        command.env_remove("SLUICE_CONSOLE_TOKEN");
        if let Some(token) = token {
            command.env("SLUICE_CONSOLE_TOKEN", token);
        }
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let page = line();
        let (address, login) = page.split_once("/?token=").expect("an address with a token");
        let address = address.strip_prefix("http://").expect("an address").to_owned();
        let token = token.map_or_else(
            || line().strip_prefix("Token of the API: ").expect("a token").to_owned(),
            str::to_owned,
        );
        Self { child, address, login: login.to_owned(), token }
    }

    fn get(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{header}\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn api(&self, path: &str) -> Value {
        let answer =
            self.get(&format!("/api/v1/{path}"), &format!("Authorization: Bearer {}\r\n", self.token));
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).expect("JSON")
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_volume_is_shown_to_whoever_has_the_token() {
    let volume = Volume::new(&["--capacity", "1"]);
    let mut console = Console::start(&[&volume.meta], None);
    assert!(console.get("/api/v1/overview", "").starts_with("HTTP/1.1 401"));
    assert!(console.get("/", "").starts_with("HTTP/1.1 401"));
    assert!(console.token.len() >= 32 && console.login.len() >= 32 && console.token != console.login);
    until("the volume", || console.api("volumes/1")["settings"]["name"] == "testvol");
    assert_eq!(console.api("volumes/1")["space"]["max_bytes"], 1 << 30);
    assert_eq!(console.api("overview")["volumes"][0]["url"], volume.meta.as_str());
    let page = console.get(&format!("/?token={}", console.login), "");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.to_lowercase().contains("set-cookie: sluice_console_"),
        "{page}"
    );
    // A signal ends it well.
    let pid = i32::try_from(console.child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::TERM).expect("sent");
    let child = std::mem::replace(&mut console.child, sluice().arg("version").spawn().expect("started"));
    ends_well(child);
}

#[test]
fn passwords_stay_in_the_program() {
    let token = "a-token-that-was-given";
    let volume = Volume::new(&[]);
    let lost = "redis://:hush-hush@127.0.0.1:1/1";
    let console = Console::start(&[&volume.meta, lost], Some(token));
    until("a failure", || console.api("volumes/2")["state"] == "error");
    let shown = [console.api("overview"), console.api("volumes/1"), console.api("volumes/2")]
        .map(|one| one.to_string());
    assert!(shown[2].contains("redis://:****@127.0.0.1:1/1"), "{}", shown[2]);
    assert!(!shown.concat().contains("hush-hush") && !shown.concat().contains(token));
    let title = std::fs::read(format!("/proc/{}/cmdline", console.child.id())).expect("read");
    assert!(!String::from_utf8_lossy(&title).contains("hush-hush"));
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    assert!(fails(&["console"]).contains("META-URL"));
    let volume = Volume::new(&[]);
    for address in ["9567", "127.0.0.1", ":9567", "127.0.0.1:x"] {
        assert!(fails(&["console", "--listen", address, &volume.meta]).contains("HOST:PORT"), "{address}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let said =
        sluice().args(["console", "--listen", &taken, &volume.meta]).output().expect("the program starts");
    assert!(!said.status.success() || String::from_utf8_lossy(&said.stderr).contains("cannot listen"));
    let weak = sluice().args(["console", &volume.meta]).env("SLUICE_CONSOLE_TOKEN", "short").output();
    let weak = weak.expect("the program starts");
    assert!(!weak.status.success());
    assert!(String::from_utf8_lossy(&weak.stderr).contains("at least 16 characters"));
}

#[test]
fn a_mount_says_where_its_metrics_and_the_console_are() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let url = "https://console.example.com/";
    let flags = ["--heartbeat", "1s", "--metrics", "127.0.0.1:0", "--console-url", url];
    let point = volume.mount("mnt", &flags);
    let metrics = || volume.status()["Sessions"][0]["MetricsAddr"].as_str().map(str::to_owned);
    until("an address", || metrics().is_some());
    assert_eq!(volume.status()["Sessions"][0]["ConsoleURL"], url);
    assert!(volume.log().contains(&format!("http://{}/metrics", metrics().expect("an address"))));
    let console = Console::start(&[&volume.meta], None);
    let requests = || {
        std::fs::read_dir(&point).expect("the mount answers").count();
        console.api("volumes/1")["live"]["rates"]["requests"].as_f64() > Some(0.0)
    };
    until("rates", requests);
    let shown = console.api("volumes/1");
    assert_eq!(shown["clients"]["shown"][0]["console_url"], url);
    assert_eq!(shown["clients"]["shown"][0]["mount_point"].as_str(), point.to_str());
    let _ = fails(&["mount", "--console-url", "http://h/?token=a", &volume.meta, "/nowhere"]);
}
