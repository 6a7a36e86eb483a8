//! Bad input: a clear error that says what to do, and nothing changed.

mod support;

use std::{fs, process::Command};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, sluice};

fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

#[test]
fn urls_that_name_no_engine() {
    says(&fails(&["status", "oracle://x/y"]), &["oracle://", "sqlite3://"]);
    says(&fails(&["status", "sqlite3://"]), &["path"]);
    says(&fails(&["format", "mysql://h/db", "vol"]), &["mysql://"]);
    says(&fails(&["status", "/some/meta.db"]), &["a path", "sqlite3:///some/meta.db"]);
}

#[test]
fn an_engine_that_is_not_there() {
    let volume = Volume::folder();
    // Nobody listens on port 1.
    let said = fails(&["status", "redis://:geheim@127.0.0.1:1/1"]);
    says(&said, &["127.0.0.1:1", "check that it runs"]);
    let point = volume.path("mnt").display().to_string();
    for command in [&["fsck"][..], &["config"], &["mdtest"], &["mount"], &["mount", "-d"], &["format"]] {
        let place = if command[0] == "format" { "testvol" } else { &point };
        let place = if matches!(command[0], "fsck" | "config") { &[][..] } else { &[place] };
        let said = fails(&[command, &["redis://127.0.0.1:1/1"], place].concat());
        says(&said, &["127.0.0.1:1", "check that it runs"]);
    }
    assert!(!said.contains("geheim"), "a password shows: {said}");
    says(&fails(&["status", &volume.meta]), &["no volume", "sluice format"]);
    assert!(!volume.path("meta.db").exists(), "looking made a database");
}

#[test]
fn a_database_without_a_volume() {
    let volume = Volume::new(&[]);
    forge(&volume.path("meta.db"), "DELETE FROM jfs_setting");
    for command in ["status", "config", "fsck"] {
        says(&fails(&[command, &volume.meta]), &["no volume", "sluice format"]);
    }
    let point = volume.path("mnt").display().to_string();
    says(&fails(&["mount", &volume.meta, &point]), &["no volume", "sluice format"]);
}

/// Runs a statement behind the program's back.
fn forge(database: &std::path::Path, statement: &str) {
    let connection = rusqlite::Connection::open(database).expect("opens");
    connection.execute(statement, []).expect("runs");
}

#[test]
fn a_volume_of_a_newer_version() {
    for volume in Volume::each(&[]) {
        let mut setting = volume.status()["Setting"].clone();
        setting["MetaVersion"] = 2.into();
        let json = setting.to_string();
        volume.forge(&format!("UPDATE jfs_setting SET value = '{json}'"), &["SET", "setting", &json]);
        let point = volume.path("mnt").display().to_string();
        let bucket = volume.path("objects").display().to_string();
        for command in [
            &["status", &volume.meta][..],
            &["config", "--trash-days", "3", &volume.meta],
            &["fsck", "--repair", &volume.meta],
            &["mdtest", &volume.meta, "dir"],
            &["mount", &volume.meta, &point],
            &["format", "--bucket", &bucket, &volume.meta, "testvol"],
        ] {
            says(&fails(command), &["metadata version 2", "newer client"]);
        }
    }
}

#[test]
fn a_bucket_that_does_not_exist() {
    let server = NoSuchBucket::start();
    let volume = Volume::folder();
    let bucket = format!("http://{}/absent", server.0);
    let s3 = ["--storage", "s3", "--access-key", "key", "--secret-key", "geheim", "--bucket", &bucket];
    let said = fails(&[&["format"], &s3[..], &[&volume.meta, "testvol"]].concat());
    says(&said, &["absent", "no such bucket: create it"]);
    assert!(!said.contains("geheim"), "a secret shows: {said}");
    says(&fails(&["status", &volume.meta]), &["no volume"]);
    // Nor is a volume moved there, unless somebody insists; and then a mount that is asked to try
    // says so.
    let volume = Volume::new(&[]);
    let said = fails(&[&["config", volume.meta.as_str()], &s3[..]].concat());
    says(&said, &["absent", "no such bucket", "--force"]);
    assert_eq!(volume.status()["Setting"]["Storage"], "file");
    ok(&[&["config", "--force", volume.meta.as_str()], &s3[..]].concat());
    let point = volume.path("mnt").display().to_string();
    let said = fails(&["mount", "--check-storage", &volume.meta, &point]);
    says(&said, &["absent", "no such bucket"]);
}

/// An S3 endpoint without buckets; it serves until the test program ends.
struct NoSuchBucket(std::net::SocketAddr);

impl NoSuchBucket {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                std::thread::spawn(|| serve(stream));
            }
        });
        Self(address)
    }
}

/// Answers every request on a connection by saying that there is no such bucket.
fn serve(mut stream: std::net::TcpStream) {
    use std::io::{BufRead, BufReader, Read, Write};
    let Ok(read) = stream.try_clone() else { return };
    let mut read = BufReader::new(read);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let _ = std::io::copy(&mut read.by_ref().take(length), &mut std::io::sink());
        let body = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code>\
                    <Message>The specified bucket does not exist</Message></Error>";
        let head = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn buckets_that_cannot_be() {
    let volume = Volume::folder();
    let file = volume.path("file");
    fs::write(&file, "x").expect("written");
    let bucket = file.join("below").display().to_string();
    says(&fails(&["format", "--bucket", &bucket, &volume.meta, "testvol"]), &["file/below"]);
    says(&fails(&["format", "--storage", "s3", &volume.meta, "testvol"]), &["--bucket"]);
    says(
        &fails(&["format", "--storage", "shelf", "--bucket", "x", &volume.meta, "testvol"]),
        &["shelf", "s3"],
    );
    assert!(!volume.path("meta.db").exists(), "a database was made");
    says(&fails(&["umount", &volume.folder.path().display().to_string()]), &["nothing is mounted on"]);
}

#[test]
fn a_bucket_of_another_volume() {
    let (one, two) = (Volume::new(&[]), Volume::new(&[]));
    let bucket = two.path("objects").display().to_string();
    let point = one.path("mnt").display().to_string();
    let cache = one.path("cache").display().to_string();
    let said = fails(&["mount", "--bucket", &bucket, "--cache-dir", &cache, &one.meta, &point]);
    says(&said, &["another volume", "--bucket"]);
    assert_eq!(one.status()["Sessions"], serde_json::json!([]), "its session stays");
    // Nor can a second volume be made in it.
    let other = format!("sqlite3://{}", one.path("other.db").display());
    says(&fails(&["format", "--bucket", &bucket, &other, "testvol"]), &["here already"]);
}

#[test]
fn a_wrong_passphrase() {
    let volume = Volume::folder();
    let key = volume.path("key.pem");
    fs::write(&key, include_str!("fixtures/rsa-with-passphrase.pem")).expect("written");
    let bucket = volume.path("objects").display().to_string();
    let format = |passphrase: &str| {
        let arguments =
            ["format", "--bucket", &bucket, "--encrypt-rsa-key", &key.display().to_string(), &volume.meta];
        let output = sluice().args(arguments).arg("testvol").env("JFS_RSA_PASSPHRASE", passphrase).output();
        let output = output.expect("starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for wrong in ["", "wrong-one"] {
        let (success, said) = format(wrong);
        assert!(!success, "{said}");
        says(&said, &["JFS_RSA_PASSPHRASE"]);
        assert!(!said.contains("wrong-one") && !said.contains("BEGIN"), "a secret shows: {said}");
    }
    let (success, said) = format("open-sesame");
    assert!(success, "{said}");
}

#[test]
fn arguments_that_make_no_sense() {
    let volume = Volume::new(&[]);
    let point = volume.path("mnt").display().to_string();
    for (flag, value) in [
        ("--buffer-size", "much"),
        ("--attr-cache", "soon"),
        ("--umask", "9"),
        ("--root-squash", "nobody"),
        ("--atime-mode", "never"),
        ("-o", "no_such_option"),
    ] {
        says(&fails(&["mount", flag, value, &volume.meta, &point]), &[value]);
    }
    for name in ["ab", "Upper", "-a-b", "under_score"] {
        says(&fails(&["format", "--", &volume.meta, name]), &["no name for a volume"]);
    }
    says(&fails(&["format", &volume.meta, "othername"]), &["testvol"]);
    says(&fails(&["umount", &point]), &["mnt"]);
    says(&fails(&["info", "/"]), &["no mounted volume"]);
    says(&fails(&["status", "-s", "99", &volume.meta]), &["no session 99"]);
    says(&fails(&["fsck", "--path", "/absent", &volume.meta]), &["/absent"]);
}

#[test]
fn what_is_mistyped_is_said() {
    let mut volume = Volume::folder();
    let bucket = volume.path("objects").display().to_string();
    let sized = |size: &'static str| {
        let meta = volume.meta.clone();
        ["format", "--bucket", &bucket, "--block-size", size, &meta, "testvol"].map(str::to_owned)
    };
    for size in ["3M", "32M", "48K", "32K", "0"] {
        let said = fails(&sized(size).each_ref().map(String::as_str));
        says(&said, &[size, "64K to 16M", "power of two"]);
    }
    ok(&sized("1024").each_ref().map(String::as_str));
    assert_eq!(volume.status()["Setting"]["BlockSize"], 1024);
    // Without a bucket, too: the name comes first.
    says(&fails(&["format", "--storage", "nope", &volume.meta, "testvol"]), &["unknown storage", "webdav"]);
    says(
        &fails(&["format", "--storage", "hdfs", &volume.meta, "testvol"]),
        &["hdfs", "cannot be used here", "Java"],
    );
    says(&fails(&["format", "--tag", "a=b", &volume.meta, "testvol"]), &["--tag is refused", "bucket"]);
    for url in ["", " "] {
        says(&fails(&["format", url, "testvol"]), &["META-URL is empty", "redis://"]);
    }
    says(&fails(&["status", &format!("{}?_timeuot=5", volume.meta)]), &["_timeuot", "_timeout"]);
    says(&fails(&["status", "redis://localhost/1?read-timeuot=5"]), &["read-timeuot", "read_timeout"]);

    let file = volume.path("file");
    fs::write(&file, "x").expect("written");
    let said = fails(&["mount", &volume.meta, &file.display().to_string()]);
    says(&said, &[&file.display().to_string(), "is not a directory"]);
    let said = fails(&["rmr", &file.display().to_string()]);
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    if no_fuse() {
        return;
    }
    let point = volume.mount("new", &["--subdir", "mistyped"]);
    says(&volume.log(), &["mistyped", "did not exist and was made"]);
    volume.umount(&point);
}

#[test]
fn lines_of_the_log_have_their_id() {
    let volume = Volume::folder();
    let bucket = volume.path("objects").display().to_string();
    let said = ok(&["format", "--log-id", "job7", "--bucket", &bucket, &volume.meta, "testvol"]);
    let line = said.lines().find(|line| line.contains("volume testvol is ready")).expect("it says so");
    assert!(line.starts_with("[job7] "), "{line}");
    let said = ok(&["--log-id", "random", "format", "--bucket", &bucket, &volume.meta, "testvol"]);
    let line = said.lines().find(|line| line.contains("is ready")).expect("it says so");
    assert_eq!(line.find("] "), Some(37), "a UUID: {line}");
    says(&fails(&["--pyroscope", "http://h", "status", &volume.meta]), &["--pyroscope", "perf"]);
}

#[test]
fn settings_of_other_clients_are_kept() {
    let volume = Volume::new(&["--ranger-rest-url", "http://ranger", "--ranger-service", "jfs"]);
    let setting = || volume.status()["Setting"].clone();
    assert_eq!(setting()["RangerRestUrl"], "http://ranger");
    assert_eq!(setting()["RangerService"], "jfs");
    assert_eq!(setting()["MinClientVersion"], "1.3.0-A");
    let config = |arguments: &[&str]| ok(&[&["config", volume.meta.as_str(), "-y"], arguments].concat());
    let refused = |arguments: &[&str]| fails(&[&["config", volume.meta.as_str(), "-y"], arguments].concat());
    config(&["--ranger-service", ""]);
    assert_eq!(setting()["RangerService"], serde_json::Value::Null);
    let kerberos = volume.path("krb5.conf");
    fs::write(&kerberos, "[libdefaults]\n").expect("written");
    config(&["--kerberos-config-file", &kerberos.display().to_string()]);
    assert_eq!(setting()["KerbConf"], "[libdefaults]\n");
    assert_eq!(setting()["MinClientVersion"], "1.4.0-A");

    config(&["--tier", "2", "--storage-class", "GLACIER", "--tag", "a=b"]);
    let tier = serde_json::json!({"ID": 2, "StorageClass": "GLACIER", "Tag": "a=b"});
    assert_eq!(setting()["Tiers"]["2"], tier);
    assert_eq!(setting()["Tiers"]["0"]["StorageClass"], "");
    config(&["--tier", "2", "--storage-class", "DEEP_ARCHIVE"]);
    assert_eq!(setting()["Tiers"]["2"]["Tag"], "a=b");
    says(&refused(&["--tier", "1"]), &["--storage-class or --tag"]);
    says(&refused(&["--tier", "4", "--tag", "a=b"]), &["--tier", "4"]);
    says(&refused(&["--tier", "1", "--tag", "ab"]), &["KEY=VALUE"]);
    says(&refused(&["--tag", "a=b"]), &["--tier"]);

    assert_eq!(setting()["UserGroupQuota"], serde_json::Value::Null);
    says(&config(&["--user-group-quota"]), &["UserGroupQuota: false -> true"]);
    assert_eq!(setting()["UserGroupQuota"], true);
    says(&config(&["--user-group-quota=false"]), &["UserGroupQuota: true -> false"]);
    assert_eq!(setting()["UserGroupQuota"], serde_json::Value::Null);

    says(&config(&["--changelog"]), &["ChangeLog: false -> true", "ChangeLogMaxAge: none -> 7200"]);
    config(&["--changelog-max-age", "30m", "--changelog-max-lines", "7"]);
    assert_eq!(setting()["ChangeLogMaxAge"], 1800);
    assert_eq!(setting()["ChangeLogMaxLines"], 7);
    // Whom these settings are for reads them.
    if let Ok(juicefs) = std::env::var("JUICEFS") {
        let output = Command::new(juicefs).args(["config", &volume.meta]).output().expect("it starts");
        let read: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for member in ["Tiers", "KerbConf", "ChangeLogMaxAge", "ChangeLogMaxLines", "MinClientVersion"] {
            assert_eq!(read[member], setting()[member], "{member}");
        }
    }
}

#[test]
fn numbers_that_cannot_be_are_told() {
    let volume = Volume::new(&[]);
    for (flag, value, word) in [
        ("--trash-days", "-1", "must not be below 0"),
        ("--trash-days", "abc", "write one from 0 to 36499"),
        ("--upload-limit", "-3", "must not be below 0"),
        ("--download-limit", "1.5", "write one from 0 to 4294967295"),
        ("--inodes", "-1", "must not be below 0"),
        ("--changelog-max-lines", "-1", "must not be below 0"),
        ("--capacity", "-1", "no size"),
    ] {
        let said = fails(&["config", &volume.meta, flag, value]);
        says(&said, &[flag, word]);
        assert!(!said.contains("tip:"), "{said}");
    }
    for flag in ["--trash-days", "--inodes", "--capacity"] {
        says(&fails(&["format", &volume.meta, flag, "-1", "testvol"]), &[flag, "-1"]);
    }
    for command in ["dump", "load", "gc"] {
        says(&fails(&[command, "--threads", "100000", &volume.meta]), &["--threads", "the most is 256"]);
    }
}

#[test]
fn flags_without_effect_say_so() {
    let volume = Volume::new(&[]);
    let point = volume.path("mnt").display().to_string();
    let said = fails(&["mount", "--upload-hours", "1-2", "-o", "no_such_option", &volume.meta, &point]);
    says(&said, &["--upload-hours has no effect without --writeback"]);
}

#[test]
fn a_second_format_changes_only_what_is_given() {
    let volume = Volume::new(&[
        "--capacity",
        "10",
        "--trash-days",
        "7",
        "--secret-key",
        "s3cret",
        "--compress",
        "lz4",
    ]);
    let setting = || volume.status()["Setting"].clone();
    let before = setting();
    let place = [volume.meta.as_str(), "testvol"];
    let format = |given: &[&'static str]| [&["format"], given, &place].concat();
    ok(&format(&[]));
    assert_eq!(setting(), before);
    ok(&format(&["--inodes", "1000"]));
    let mut wanted = before;
    wanted["Inodes"] = 1000.into();
    assert_eq!(setting(), wanted);
    // How its data is stored is no matter of a slip; the same again is none.
    ok(&format(&["--compress", "lz4"]));
    says(&fails(&format(&["--compress", "zstd"])), &["compression", "testvol", "--force"]);
    says(&fails(&format(&["--block-size", "1M"])), &["block size", "testvol", "--force"]);
    says(&fails(&format(&["--storage", "s3"])), &["file", "--bucket"]);
    says(&fails(&format(&["--encrypt-rsa-key", "key.pem"])), &["not encrypted"]);
    assert_eq!(setting(), wanted);
    ok(&format(&["--force", "--compress", "zstd"]));
    wanted["Compression"] = "zstd".into();
    assert_eq!(setting(), wanted);
}

#[test]
fn what_is_written_has_the_storage_class_of_the_first_tier() {
    let volume = Volume::new(&["--storage-class", "STANDARD_IA"]);
    let class = || volume.status()["Setting"]["Tiers"]["0"]["StorageClass"].clone();
    assert_eq!(class(), "STANDARD_IA");
    ok(&["config", "--storage-class", "GLACIER_IR", "--force", &volume.meta]);
    assert_eq!(class(), "GLACIER_IR");
}

#[test]
fn settings_change_and_only_in_the_right_direction() {
    let volume = Volume::new(&[]);
    let config = |arguments: &[&str]| ok(&[&["config", volume.meta.as_str()], arguments].concat());
    let refused = |arguments: &[&str]| fails(&[&["config", volume.meta.as_str()], arguments].concat());
    config(&["--capacity", "10", "--inodes", "1000", "--upload-limit", "80"]);
    let setting = volume.status()["Setting"].clone();
    assert_eq!(setting["Capacity"], 10_u64 << 30);
    assert_eq!(setting["Inodes"], 1000);
    assert_eq!(setting["UploadLimit"], 80);
    // What is dangerous asks first, and nobody is there to answer.
    says(&refused(&["--trash-days", "0"]), &["--yes"]);
    config(&["--trash-days", "0", "--yes"]);
    assert_eq!(volume.status()["Setting"]["TrashDays"], 0);
    config(&["--trash-days", "7"]);
    config(&["--enable-acl", "--yes"]);
    assert_eq!(volume.status()["Setting"]["MinClientVersion"], "1.2.0-A");
    says(&refused(&["--enable-acl=false"]), &["cannot be switched off"]);
    says(&refused(&["--min-client-version", "1.0.0", "-y"]), &["only rise"]);
    says(&refused(&["--min-client-version", "soon", "-y"]), &["no version"]);
    says(&refused(&["--max-client-version", "1.1.0"]), &["no client is both"]);
    // A secret goes in sealed and never shows.
    let said = config(&["--secret-key", "open-sesame", "--force"]);
    let shown = config(&[]);
    assert!(!said.contains("open-sesame") && !shown.contains("open-sesame"), "{said}{shown}");
    let database = fs::read(volume.path("meta.db")).expect("read");
    let wal = fs::read(volume.path("meta.db-wal")).unwrap_or_default();
    let clear = |bytes: &[u8]| bytes.windows(11).any(|window| window == b"open-sesame");
    assert!(!clear(&database) && !clear(&wal), "the secret is stored in clear");
    // A bucket that does not work is refused.
    fs::write(volume.path("file"), "x").expect("written");
    let bucket = volume.path("file/below").display().to_string();
    says(&refused(&["--bucket", &bucket]), &["does not work", "--force"]);
    assert_eq!(volume.status()["Sessions"], serde_json::json!([]));
}
