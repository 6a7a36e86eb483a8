//! The commands that look into a mount: `stats`, `profile`, `debug`.

mod support;

use std::{fs, io::Read, process::Stdio, time::Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_testkit::fuse::no_fuse;
use support::{TIMEOUT, Volume, fails, ok, sluice};

#[test]
fn stats_shows_what_happens() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &[]);
    let mount = point.display().to_string();
    let mut stats = sluice();
    stats.args(["stats", &mount, "--schema", "tufmco", "-l", "1", "-c", "2"]).stdout(Stdio::piped());
    let mut child = stats.spawn().expect("it starts");
    // It measures from its first line on.
    let mut out = child.stdout.take().expect("piped");
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    while shown.lines().count() < 3 {
        let n = out.read(&mut buffer).expect("read");
        assert!(n > 0, "{shown}");
        shown.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    fs::write(point.join("file"), vec![1; 3 << 20]).expect("written");
    out.read_to_string(&mut shown).expect("read");
    assert!(child.wait().expect("ended").success());
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(lines[0].contains("fuse") && lines[1].contains("write"), "{shown}");
    let fuse: Vec<&str> = lines[3].split('|').nth(2).expect("sections").split_whitespace().collect();
    assert!(fuse[0] != "0", "{shown}");
    let written = fuse.last().expect("columns");
    assert!(
        written.ends_with('K') && written.trim_end_matches('K').parse::<u32>().is_ok_and(|kib| kib > 500),
        "{shown}"
    );
    assert!(fails(&["stats", &mount, "--interval", "0"]).contains("interval"));
    assert!(fails(&["stats", &mount, "--schema", "ux"]).contains("no section 'x'"));
    let elsewhere = volume.folder.path().display().to_string();
    assert!(fails(&["stats", &elsewhere]).contains("no volume is mounted"));
}

#[test]
fn profile_sums_up_a_mount_and_a_log() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &[]);
    let mut profile = sluice();
    profile.args(["profile", "--interval", "1"]).arg(&point).stdout(Stdio::piped());
    let mut child = profile.spawn().expect("it starts");
    let mut out = child.stdout.take().expect("piped");
    let (mut shown, mut buffer, begun, mut n) = (String::new(), [0; 4096], Instant::now(), 0);
    while !shown.contains("mkdir ") {
        assert!(begun.elapsed() < TIMEOUT, "{shown}");
        fs::create_dir(point.join(format!("dir{n}"))).expect("made");
        n += 1;
        let read = out.read(&mut buffer).expect("read");
        shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("told to end");
    child.wait().expect("ended");
    let log = volume.path("access");
    let line = |second: u32, uid: u32, op: &str, took: &str| {
        format!(
            "2026.01.01 00:00:{second:02}.500000 [uid:{uid},gid:{uid},pid:9] {op} (1,a b): - OK <{took}>\n"
        )
    };
    let text = [
        "#\n".to_owned(),
        line(0, 0, "read", "0.000010"),
        line(1, 5, "write", "0.500000"),
        "broken\n".to_owned(),
        line(9, 5, "read", "0.000030"),
    ];
    fs::write(&log, text.concat()).expect("written");
    let log = log.display().to_string();
    let all = ok(&["profile", &log, "--interval", "0"]);
    let row = |text: &str, op: &str| {
        let line = text.lines().find(|line| line.starts_with(op)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row(&all, "read "), "read 2 20 40 0.0", "{all}");
    assert_eq!(row(&all, "write "), "write 1 500000 500000 5.6", "{all}");
    assert!(all.contains("1 lines") && all.contains("not understood"), "{all}");
    let parts = ok(&["profile", &log]);
    assert_eq!(parts.matches("Operation ").count(), 2, "{parts}");
    let one = ok(&["profile", &log, "--interval", "0", "-u", "0,7"]);
    assert_eq!(row(&one, "read "), "read 1 10 10 1000.0", "{one}");
    assert!(!one.contains("write"), "{one}");
    let none = ok(&["profile", &log, "--interval", "0", "-p", "1"]);
    assert!(none.contains("none of the 3 operations"), "{none}");
    let no_log = volume.path("meta.db").display().to_string();
    assert!(fails(&["profile", &no_log]).contains("no line of an access log"));
    let mount = point.display().to_string();
    assert!(fails(&["profile", &mount, "--interval", "0"]).contains("1 or more"));
}

#[test]
fn lines_for_machines_say_what_they_are_about() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--log-format", "json", "--free-space-ratio", "0.001"]);
    let session = volume.status()["Sessions"][0]["Sid"].clone();
    fs::write(point.join("file"), "content").expect("written");
    ok(&["warmup", &point.display().to_string()]);
    let log = volume.log();
    let spans = |text: &str| {
        let line = log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text}: {log}"));
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["spans"].clone()
    };
    for (text, job) in [("is mounted on", None), ("warmup has ended", Some("sluice-control"))] {
        let spans = spans(text);
        let about = ["command", "volume", "session"].map(|field| &spans[0][field]);
        assert_eq!(about, [&"mount".into(), &"testvol".into(), &session], "{text}: {spans}");
        assert_eq!(spans[1]["job"].as_str(), job, "{text}: {spans}");
    }
    volume.umount(&point);
    // For people it is the line alone.
    volume.mount("mnt", &[]);
    assert!(volume.log().contains("is mounted on") && !volume.log().contains("command{"), "{}", volume.log());
    volume.umount(&point);
}

#[test]
fn debug_collects_much_and_no_secret() {
    if no_fuse() {
        return;
    }
    let mut volume =
        Volume::new(&["--access-key", "visible", "--secret-key", "hush1", "--session-token", "hush2"]);
    let point = volume.mount("mnt", &["--log-format", "json"]);
    // What libraries say may have anything in it.
    let noise = "connect redis://:hush3@host/1: refused\npostgres://u@h/d?password=hush4\n--secret-key hush5\n\
                 {\"session_token\":\"hush6\"}\nmore noise\n";
    let mut log = fs::File::options().append(true).open(volume.path("log")).expect("a log");
    std::io::Write::write_all(&mut log, noise.as_bytes()).expect("written");
    let (mount, out) = (point.display().to_string(), volume.path("out").display().to_string());
    let said = ok(&["debug", &mount, "--out-dir", &out, "--stats-sec", "0", "--limit", "1000"]);
    let archive = said.trim();
    let dir = archive.strip_suffix(".tar.gz").expect("an archive");
    let texts: Vec<(String, String)> = fs::read_dir(dir)
        .expect("a directory")
        .map(|file| file.expect("listed").path())
        .map(|path| (path.display().to_string(), fs::read_to_string(path).expect("text")))
        .collect();
    let text = |name: &str| {
        let found = texts.iter().find(|(path, _)| path.ends_with(name));
        found.map_or_else(|| panic!("no {name} in {dir}"), |(_, text)| text.as_str())
    };
    for (name, expected) in [
        ("system.txt", "MemTotal"),
        ("config.json", "\"testvol\""),
        ("process.txt", "sluice"),
        ("log.txt", "more noise"),
        ("stats.1.txt", "juicefs_uptime"),
        ("stats.2.txt", "juicefs_uptime"),
    ] {
        assert!(text(name).contains(expected), "{name}: {}", text(name));
    }
    assert!(texts.iter().all(|(_, text)| !text.contains("hush")), "{texts:?}");
    // The log was asked for as JSON.
    let mounted = text("log.txt").lines().find(|line| line.contains("is mounted on")).expect("said so");
    let mounted: serde_json::Value = serde_json::from_str(mounted).expect("JSON");
    assert_eq!(mounted["level"], "INFO", "{mounted}");
    let listed = std::process::Command::new("tar").args(["-tzf", archive]).output().expect("tar runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(
        listed.lines().filter(|line| line.contains(".txt") || line.contains(".json")).count(),
        6,
        "{listed}"
    );
    let few = ok(&["debug", &mount, "--out-dir", &out, "--stats-sec", "0", "--limit", "1"]);
    let few =
        fs::read_to_string(format!("{}/log.txt", few.trim().trim_end_matches(".tar.gz"))).expect("text");
    // The mount may have said something since.
    assert!(few.lines().count() == 2 && volume.log().contains(few.lines().last().expect("a line")), "{few}");
    assert!(!few.contains("refused"), "{few}");
    assert!(fails(&["debug", &out]).contains("no volume is mounted"));
}

#[test]
fn changelog_prints_what_is_logged() {
    for volume in Volume::each(&["--trash-days", "0"]) {
        let meta = volume.meta.as_str();
        let said = fails(&["changelog", meta]);
        assert!(said.contains("--changelog"), "{said}");
        ok(&["config", meta, "--changelog", "-y"]);
        ok(&["config", meta, "--capacity", "7", "-y"]);
        let mut child = sluice();
        child.args(["changelog", meta, "--from", "1"]).stdout(Stdio::piped());
        let mut child = child.spawn().expect("it starts");
        let mut out = child.stdout.take().expect("piped");
        let (mut shown, mut buffer) = (String::new(), [0; 4096]);
        // What comes while it runs is printed, too.
        let mut more = Some(|| ok(&["config", meta, "--inodes", "1000", "-y"]));
        while shown.matches("|CLEANSESSION(").count() < 2 {
            let n = out.read(&mut buffer).expect("read");
            assert!(n > 0, "{shown}");
            shown.push_str(&String::from_utf8_lossy(&buffer[..n]));
            if shown.contains("|CLEANSESSION(")
                && let Some(more) = more.take()
            {
                more();
            }
        }
        kill_process(Pid::from_child(&child), Signal::TERM).expect("sent");
        assert!(child.wait().expect("ended").success());
        let numbers: Vec<u64> = shown
            .lines()
            .map(|line| line.split(": ").next().expect("a number").parse().expect("a number"))
            .collect();
        assert!(numbers[0] == 2 && numbers.is_sorted_by(|a, b| a < b), "{shown}");
    }
}
