//! `sluice mount --cache-group`: one read of the object store serves all mounts of a group.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, ok, run, until};

const FILES: usize = 60;

fn content(file: usize) -> Vec<u8> {
    let size = [1000, 11_800, 70_000, 300_000][file % 4];
    (0..size).map(|at| (at * 31 + file * 7 + at / 251) as u8).collect()
}

/// A number of a mount.
fn stat(mount: &Path, name: &str) -> f64 {
    let stats = fs::read_to_string(mount.join(".stats")).expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {stats}"))
}

/// Bytes that mounts read from the object store.
fn from_store(mounts: &[PathBuf]) -> f64 {
    mounts.iter().map(|mount| stat(mount, "juicefs_object_request_data_bytes_GET")).sum()
}

/// A volume with files, which no mount has cached.
fn volume() -> Volume {
    let mut volume = Volume::new(&["--block-size", "64K", "--trash-days", "0"]);
    let point = volume.mount("filled", &[]);
    for file in 0..FILES {
        fs::write(point.join(format!("file{file}")), content(file)).expect("written");
    }
    volume.umount(&point);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    volume
}

/// A member with a cache of its own, by a name in the folder.
fn member(volume: &mut Volume, name: &str, more: &[&str]) -> PathBuf {
    volume.cache = format!("cache-{name}");
    let group = ["--cache-group", "g", "--group-ip", "127.0.0.1", "--free-space-ratio", "0"];
    let flags = [&group[..], &["--metrics", "127.0.0.1:0", "--heartbeat", "1"]].concat();
    volume.mount(name, &[&flags[..], more].concat())
}

/// A client that only takes, and keeps nothing on disk.
fn taker(volume: &mut Volume, name: &str) -> PathBuf {
    volume.mount(name, &["--cache-group", "g", "--no-sharing", "--cache-size", "0"])
}

fn read_all(mount: &Path) {
    for file in 0..FILES {
        assert!(fs::read(mount.join(format!("file{file}"))).expect("read") == content(file), "file{file}");
    }
}

/// What `status --more` shows of the members.
fn members_of(volume: &Volume) -> Vec<serde_json::Value> {
    let status: serde_json::Value =
        serde_json::from_str(&ok(&["status", "--more", &volume.meta])).expect("status prints JSON");
    status["CacheGroups"].as_array().expect("the members").clone()
}

/// `status --more` shows what each member served.
fn hit_rates_are_shown(volume: &Volume, members: usize) {
    until("the members served others", || {
        let shown = members_of(volume);
        assert_eq!(shown.len(), members, "{shown:?}");
        let rates: Vec<f64> = shown.iter().filter_map(|member| member["HitRate"].as_f64()).collect();
        assert!(rates.iter().all(|rate| *rate > 0.0 && *rate < 1.0), "{shown:?}");
        rates.len() == members && shown.iter().all(|member| member["ServedBytes"].as_u64() > Some(0))
    });
}

#[test]
fn the_object_store_is_read_once_however_many_mounts_read() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let members = [member(&mut volume, "a", &[]), member(&mut volume, "b", &[])];
    // Their metrics are known before their first heartbeat.
    let shown = members_of(&volume);
    assert!(shown.iter().all(|member| member["NoMetrics"].is_null()), "{shown:?}");
    let takers = [1, 2, 3].map(|n| taker(&mut volume, &format!("taker{n}")));
    std::thread::scope(|scope| takers.iter().for_each(|mount| drop(scope.spawn(|| read_all(mount)))));
    let all: f64 = (0..FILES).map(|file| content(file).len() as f64).sum();
    let read = from_store(&members);
    assert!(read >= all && read <= 1.05 * all, "{read} of {all} bytes");
    assert!(from_store(&takers) < f64::EPSILON, "takers read none themselves");
    assert!(takers.iter().all(|mount| stat(mount, "juicefs_remotecache_gets") > 0.0));
    for mount in &members {
        read_all(mount);
    }
    assert!((from_store(&members) - read).abs() < f64::EPSILON, "members have each other's blocks");
    hit_rates_are_shown(&volume, members.len());
    for mount in takers.iter().chain(&members) {
        volume.umount(mount);
    }
}

#[test]
fn members_that_die_or_leave_are_missed_by_nobody() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let gone = member(&mut volume, "a", &[]);
    let stays = member(&mut volume, "b", &[]);
    let taker = taker(&mut volume, "taker");
    read_all(&taker);
    volume.umount(&gone);
    let again = volume.mount("late", &["--cache-group", "g", "--no-sharing", "--cache-size", "0"]);
    read_all(&again);
    assert!(
        from_store(std::slice::from_ref(&again)) < f64::EPSILON,
        "it was not told of the member that left"
    );
    read_all(&taker);
    // The last member goes without a word.
    let pid = fs::read_to_string(stays.join(".config")).expect("settings");
    let pid: serde_json::Value = serde_json::from_str(&pid).expect("JSON");
    let pid = pid["Pid"].as_i64().expect("its process").to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().expect("runs").success());
    for mount in [&taker, &again] {
        fs::metadata(mount).expect("there");
        read_all(mount);
    }
    assert!(Command::new("kill").args(["-CONT", &pid]).status().expect("runs").success());
    for mount in [taker, again, stays] {
        volume.umount(&mount);
    }
}

#[test]
fn warming_up_fills_the_caches_of_the_owners() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let members = [member(&mut volume, "a", &[]), member(&mut volume, "b", &[])];
    let taker = taker(&mut volume, "taker");
    ok(&["warmup", &taker.display().to_string()]);
    let all: f64 = (0..FILES).map(|file| content(file).len() as f64).sum();
    let read = from_store(&members);
    assert!(read >= all && read <= 1.05 * all, "{read} of {all} bytes");
    until("both have some", || {
        members.iter().all(|mount| stat(mount, "juicefs_blockcache_bytes") > all / 10.0)
    });
    read_all(&taker);
    assert!(
        (from_store(&members) - read).abs() < f64::EPSILON
            && from_store(std::slice::from_ref(&taker)) < f64::EPSILON
    );
    // What an owner lost is fetched again.
    for name in ["cache-a", "cache-b"] {
        fs::remove_dir_all(volume.path(name)).expect("removed");
    }
    ok(&["warmup", &taker.display().to_string()]);
    let is_there = |name: &str| fs::read_dir(volume.path(name)).is_ok();
    until("both to fill theirs", || is_there("cache-a") && is_there("cache-b"));
    for mount in members.iter().chain([&taker]) {
        volume.umount(mount);
    }
}

#[test]
fn a_member_listens_where_others_are_told_to_find_it() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    // One address is of this machine, the other one belongs to a gateway.
    let (own, elsewhere) = ("127.0.0.3", "192.0.2.7");
    let members = [own, elsewhere].map(|ip| {
        volume.cache = format!("cache-{ip}");
        volume.mount(ip, &["--cache-group", "g", "--group-ip", ip])
    });
    let status = ok(&["status", &volume.meta]);
    let port = |ip: &str| -> u16 {
        let (_, rest) = status.split_once(&format!("{ip}:")).expect("it is a member");
        let digits = rest.split(|byte: char| !byte.is_ascii_digit()).next();
        digits.and_then(|port| port.parse().ok()).expect("a port")
    };
    let answers = |ip: &str, port| std::net::TcpStream::connect((ip, port)).is_ok();
    assert!(answers(own, port(own)) && !answers("127.0.0.4", port(own)));
    assert!(answers("127.0.0.4", port(elsewhere)));
    for mount in &members {
        volume.umount(mount);
    }
}

#[test]
fn flags_that_cannot_be_are_refused() {
    let volume = Volume::new(&[]);
    let point = volume.path("mnt").display().to_string();
    let refused = |flags: &[&str]| {
        let (success, said) = run(&[&["mount", &volume.meta, &point], flags].concat());
        assert!(!success, "{flags:?}: {said}");
        said
    };
    let said = refused(&["--cache-group", "g", "--no-sharing", "--group-weight", "7"]);
    assert!(said.contains("--group-weight is refused"), "{said}");
    let said = refused(&["--cache-group", "g", "--group-network", "10.0.0.0/40"]);
    assert!(said.contains("is no network"), "{said}");
    let said = refused(&["--cache-group", ""]);
    assert!(said.contains("the group needs a name"), "{said}");
    let said = refused(&["--cache-group", "two\nlines"]);
    assert!(said.contains("\"two\\nlines\" has control characters"), "{said}");
    let said = refused(&["--cache-group", &"n".repeat(256)]);
    assert!(said.contains("256 bytes"), "{said}");
    let idle = ["--read-only", "--cache-group", "g", "--group-weight", "7", "-o", "no_such_option"];
    let said = refused(&idle);
    assert!(said.contains("--group-weight has no effect: a read-only mount gives"), "{said}");
}
