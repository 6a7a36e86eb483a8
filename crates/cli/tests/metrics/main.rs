//! The metrics of a mount: what they are called, and that Prometheus itself reads them and answers
//! what dashboards ask.
//!
//! `names.txt` has the names that JuiceFS 1.4.1 has, with their types, labels and classes;
//! `queries.txt` has queries of dashboards, to metrics of JuiceFS and to some of Sluice
//! (`sluice_…`). Both are lists of our own.

mod push;
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use sluice_testkit::fuse::no_fuse;
use support::{TIMEOUT, Volume, fails, mounted, until};

/// One request over HTTP, which must be answered.
fn http(address: &str, method: &str, path: &str) -> (u16, String) {
    try_http(address, method, path).unwrap_or_else(|error| panic!("{method} {address}{path}: {error}"))
}

fn try_http(address: &str, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // Of this version, so that the answer is not in chunks and ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}

/// Where a mount shows its metrics, the first or another one that does.
fn address(volume: &Volume, number: usize) -> String {
    let shown = || {
        let log = volume.log();
        let rest = log.split("metrics are shown at http://").nth(number)?;
        Some(rest.split('/').next()?.to_owned())
    };
    until("an address", || shown().is_some());
    shown().expect("shown")
}

/// Makes a mount do something of each kind.
fn use_it(point: &Path) {
    let file = point.join("file");
    fs::write(&file, vec![7; 10_000]).expect("written");
    fs::File::open(&file).expect("opened").sync_all().expect("stored");
    assert_eq!(fs::read(&file).expect("read").len(), 10_000);
    fs::create_dir(point.join("dir")).expect("made");
    fs::metadata(point.join("absent")).expect_err("not there");
    fs::remove_file(&file).expect("removed");
}

/// A sample: its name, its labels, its number.
fn samples(text: &str) -> Vec<(String, BTreeMap<String, String>, f64)> {
    let parse = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.strip_suffix('}').map_or(Some((series, "")), |s| s.split_once('{'))?;
        // No value of these tests has a quote or a comma in it.
        let pairs = labels.split("\",").filter(|pair| !pair.is_empty());
        let labels = pairs
            .map(|pair| pair.split_once("=\"").map(|(k, v)| (k.into(), v.trim_end_matches('"').into())))
            .collect::<Option<_>>()?;
        let value = if value == "+Inf" { f64::INFINITY } else { value.parse().ok()? };
        Some((name.to_owned(), labels, value))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("not understood: {line}"))).collect()
}

#[test]
fn names_types_labels_and_classes_are_those_of_juicefs() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &["--metrics", "127.0.0.1:0", "--custom-labels", "team:a;x:y z"]);
    use_it(&point);
    let address = address(&volume, 1);
    let (status, text) = http(&address, "GET", "/metrics");
    assert_eq!(status, 200, "{text}");
    let samples = samples(&text);
    for (name, labels, _) in &samples {
        for (label, value) in [("team", "a"), ("x", "y z"), ("vol_name", "testvol")] {
            assert_eq!(labels.get(label).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(labels.get("mp").map(String::as_str), point.to_str(), "{name}");
        assert!(labels.contains_key("instance") && labels.contains_key("juicefs_version"), "{name}");
    }
    let common = ["team", "x", "vol_name", "mp", "instance", "juicefs_version"];
    for line in include_str!("names.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, kind, own, classes) = (word(), word(), word(), word());
        assert!(text.contains(&format!("\n# TYPE {name} {kind}\n")), "{name} is no {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} is not explained");
        let own: BTreeSet<&str> = own.split(',').filter(|label| *label != "-").collect();
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let of: Vec<_> = samples.iter().filter(|(known, ..)| *known == sample).collect();
        assert!(!of.is_empty(), "{name} has no sample");
        for (_, labels, _) in of {
            let found: BTreeSet<&str> =
                labels.keys().map(String::as_str).filter(|label| !common.contains(label)).collect();
            assert_eq!(found, own, "labels of {name}");
        }
        if kind == "histogram" {
            let bucket = format!("{name}_bucket");
            let mut bounds: Vec<&str> = Vec::new();
            for (_, labels, _) in samples.iter().filter(|(known, ..)| *known == bucket) {
                let bound = labels["le"].as_str();
                if !bounds.contains(&bound) {
                    bounds.push(bound);
                }
            }
            assert_eq!(bounds.join(","), classes, "classes of {name}");
        }
    }
    // What was done shows.
    let sum = |name: &str, label: (&str, &str)| -> f64 {
        let of = samples.iter().filter(|(known, labels, _)| {
            known == name && (label.0.is_empty() || labels.get(label.0).is_some_and(|v| v == label.1))
        });
        of.map(|(.., value)| value).sum()
    };
    let all = ("", "");
    assert!(sum("juicefs_fuse_ops_total", ("method", "write")) >= 1.0);
    assert!(sum("juicefs_fuse_ops_io_errors", ("errno", "ENOENT")) >= 1.0);
    assert!((sum("juicefs_fuse_written_size_bytes_sum", all) - 10_000.0).abs() < 1e-9);
    assert!(sum("juicefs_object_request_data_bytes", ("method", "PUT")) >= 10_000.0);
    assert!(sum("juicefs_meta_ops_total", ("method", "Mknod")) >= 2.0);
    let commits = sum("juicefs_transaction_durations_histogram_seconds_count", all);
    assert!(commits >= 3.0);
    assert!((sum("sluice_batch_operations_count", all) - commits).abs() < 1e-9);
    assert!(
        (sum("sluice_batch_operations_sum", all) - sum("sluice_batch_queue_seconds_count", all)).abs() < 1e-9
    );
    let requests = sum("juicefs_fuse_ops_total", all);
    assert!((sum("juicefs_fuse_ops_durations_histogram_seconds_count", all) - requests).abs() < 1e-9);
    // `.stats` has the same names.
    let stats = fs::read_to_string(point.join(".stats")).expect("read");
    for line in
        ["juicefs_fuse_ops_total_write ", "juicefs_object_request_durations_histogram_seconds_PUT_total "]
    {
        assert!(stats.contains(line), "{line}: {stats}");
    }
    assert_eq!(http(&address, "GET", "/").0, 404);
    assert_eq!(http(&address, "POST", "/metrics").0, 405);
    assert_eq!(http(&address, "HEAD", "/metrics"), (200, String::new()));
}

#[test]
fn a_port_that_is_in_use_is_no_reason_not_to_mount() {
    if no_fuse() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let mut volume = Volume::new(&[]);
    let first = volume.mount("first", &[]);
    let usual = address(&volume, 1);
    assert_eq!(http(&usual, "GET", "/metrics").0, 200);
    let second = volume.mount("second", &[]);
    assert_ne!(address(&volume, 2), usual, "both have a port of their own");
    assert!(mounted(&first) && mounted(&second));
    let third = volume.mount("third", &["--metrics", &taken]);
    until("a message", || volume.log().contains(&format!("cannot listen on {taken}")));
    let shown = volume.log().matches("metrics are shown").count();
    let fourth = volume.mount("fourth", &["--metrics", ""]);
    assert!(mounted(&third) && mounted(&fourth));
    volume.umount(&fourth);
    assert_eq!(volume.log().matches("metrics are shown").count(), shown, "nobody asked for them");
}

#[test]
fn consul_is_told_where_they_are() {
    if no_fuse() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let consul = listener.local_addr().expect("an address").to_string();
    let heard = std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("somebody");
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            // The first connection only asks by which address Consul is reached.
            loop {
                let n = stream.read(&mut buffer).expect("read");
                request.extend_from_slice(&buffer[..n]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
                if let Some(Ok(service)) = body.map(serde_json::from_str::<Value>) {
                    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("answered");
                    return (text.lines().next().unwrap_or_default().to_owned(), service);
                }
                if n == 0 {
                    break;
                }
            }
        }
    });
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--consul", &consul]);
    let address = address(&volume, 1);
    let (line, service) = heard.join().expect("told");
    assert_eq!(line, "PUT /v1/agent/service/register HTTP/1.0");
    assert_eq!(service["Name"], "juicefs");
    assert_eq!(service["Check"]["HTTP"], format!("http://{address}/metrics"));
    assert_eq!(service["Meta"]["mountPoint"], point.display().to_string());
    assert_eq!(format!("127.0.0.1:{}", service["Port"]), address);
    until("a word of it", || volume.log().contains("knows of the metrics"));
}

#[test]
fn wrong_flags_are_refused_with_a_reason() {
    for (flags, expected) in [
        (["--metrics", "nonsense"], "HOST:PORT"),
        (["--custom-labels", "team"], "NAME:VALUE"),
        (["--consul", "nonsense"], "HOST:PORT"),
        (["--custom-labels", "method:x"], "label method of their own"),
    ] {
        let said = fails(&["mount", flags[0], flags[1], "sqlite3:///nowhere/meta.db", "/nowhere"]);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn promtool_finds_fault_with_inherited_names_only() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--metrics", "127.0.0.1:0"]);
    use_it(&point);
    let (_, text) = http(&address(&volume, 1), "GET", "/metrics");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed by scripts/setup");
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("written");
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // Of these, 1 means that the text is wrong, 3 that names are not as usual.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("juicefs_"), "{line}");
    }
}

/// A Prometheus that reads the metrics of one mount.
struct Prometheus {
    process: Child,
    address: String,
}

impl Prometheus {
    fn start(volume: &Volume, target: &str) -> Self {
        let place = volume.path("prometheus");
        fs::create_dir(&place).expect("made");
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: sluice, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        fs::write(place.join("config.yml"), config).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let address = free.to_string();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", place.join("config.yml").display()))
            .arg(format!("--storage.tsdb.path={}", place.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.join("log")).expect("a log"))
            .spawn()
            .expect("prometheus is installed by scripts/setup");
        let started = Self { process, address };
        until("prometheus", || matches!(try_http(&started.address, "GET", "/-/ready"), Ok((200, _))));
        started
    }

    /// What it answers to a request of its interface.
    fn ask(&self, path: &str) -> Value {
        let (status, body) = http(&self.address, "GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")["data"].take()
    }

    /// The samples that a query finds.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: Vec<String> = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let encoded = encoded.concat();
        let found = self.ask(&format!("/api/v1/query?query={encoded}"));
        found["result"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What our own dashboard asks.
fn dashboard() -> Vec<String> {
    let text = include_str!("../../../../docs/dashboards/sluice.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> = targets
        .filter_map(|target| target["expr"].as_str())
        .map(|query| query.replace("$volume", "testvol").replace("$__rate_interval", "10s"))
        .collect();
    assert!(queries.len() > 30, "{queries:?}");
    queries
}

#[test]
fn prometheus_answers_what_dashboards_ask() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--metrics", "127.0.0.1:0"]);
    use_it(&point);
    let prometheus = Prometheus::start(&volume, &address(&volume, 1));
    let mut names = BTreeSet::new();
    let queries = include_str!("queries.txt").lines().filter(|line| !line.starts_with('#'));
    let ours = dashboard();
    for query in queries.chain(ours.iter().map(String::as_str)) {
        // Rates need two samples.
        until(query, || !prometheus.query(query).is_empty());
        names.extend(
            query
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .filter(|word| word.starts_with("juicefs_") && *word != "juicefs_version"),
        );
    }
    assert!(names.len() >= 30, "{names:?}");
    let volumes = prometheus.ask("/api/v1/label/vol_name/values?match[]=juicefs_uptime");
    assert_eq!(volumes, serde_json::json!(["testvol"]));
    // The numbers are right, too.
    fs::write(point.join("more"), vec![1; 5000]).expect("written");
    let written = "sum(juicefs_fuse_written_size_bytes_sum)";
    until("what was written", || {
        prometheus.query(written).first().is_some_and(|found| found["value"][1] == "15000")
    });
    let trash = "max(sluice_trash_directories) - max(sluice_trash_overdue_directories)";
    until("the trash", || prometheus.query(trash).first().is_some_and(|found| found["value"][1] == "1"));
    let targets = prometheus.ask("/api/v1/targets?state=active");
    assert_eq!(targets["activeTargets"][0]["health"], "up", "{targets}");
}
