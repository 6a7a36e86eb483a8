//! Volumes to run the program on: a folder of its own, mounts that go when the test ends, however
//! it ends.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sluice_testkit::{server::Redis, wait};
use tempfile::TempDir;

/// How long anything may take.
pub const TIMEOUT: Duration = Duration::from_mins(1);

pub const ENOTCONN: i32 = rustix::io::Errno::NOTCONN.raw_os_error();

/// Whether what is mounted at `point` has no server any more.
pub fn is_dead(point: &Path) -> bool {
    fs::metadata(point).is_err_and(|why| why.raw_os_error() == Some(ENOTCONN))
}

/// Waits until `done`.
pub fn until(what: &str, done: impl FnMut() -> bool) {
    wait::until(what, TIMEOUT, done).unwrap_or_else(|why| panic!("{why}"));
}

/// The program.
pub fn sluice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for name in
        ["META_PASSWORD", "META_PASSWORD_FILE", "REDIS_PASSWORD", "ACCESS_KEY", "SECRET_KEY", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs the program; whether it succeeded and all it said.
pub fn run(arguments: &[&str]) -> (bool, String) {
    let output = sluice().args(arguments).output().expect("the program starts");
    (output.status.success(), text(&output))
}

/// Runs the program, which must succeed.
pub fn ok(arguments: &[&str]) -> String {
    let (success, said) = run(arguments);
    assert!(success, "sluice {}: {said}", arguments.join(" "));
    said
}

/// Runs the program, which must fail, and not by a panic.
pub fn fails(arguments: &[&str]) -> String {
    let (success, said) = run(arguments);
    assert!(!success, "sluice {} should fail: {said}", arguments.join(" "));
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// A volume on SQLite or a Redis of its own, and a folder.
pub struct Volume {
    mounts: Vec<PathBuf>,
    children: Vec<Child>,
    pub folder: TempDir,
    pub meta: String,
    /// The server, if the volume is on one.
    pub redis: Option<Redis>,
    /// Where mounts cache blocks, in the folder.
    pub cache: String,
    /// Variables of the environment of mounts.
    pub environment: Vec<(&'static str, String)>,
}

impl Volume {
    /// A folder without a volume.
    pub fn folder() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sluice-cli-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let meta = format!("sqlite3://{}", folder.path().join("meta.db").display());
        Self {
            mounts: Vec::new(),
            children: Vec::new(),
            folder,
            meta,
            redis: None,
            cache: "cache".into(),
            environment: Vec::new(),
        }
    }

    /// A formatted volume on SQLite; `options` are further flags of `format`.
    pub fn new(options: &[&str]) -> Self {
        Self::folder().formatted(options)
    }

    fn formatted(self, options: &[&str]) -> Self {
        let bucket = self.path("objects").display().to_string();
        ok(&[&["format", "--bucket", &bucket], options, &[&self.meta, "testvol"]].concat());
        self
    }

    /// A formatted volume on each engine.
    pub fn each(options: &[&str]) -> impl Iterator<Item = Self> {
        let on_redis = || {
            let redis = sluice_testkit::server::redis().expect("redis-server is installed");
            let mut volume = Self::folder();
            volume.meta = redis.url(1);
            volume.redis = Some(redis);
            volume
        };
        [Self::folder as fn() -> Self, on_redis].into_iter().map(|place| place().formatted(options))
    }

    /// Changes the database behind the program's back: `sql` on SQLite, `command` on Redis.
    pub fn forge(&self, sql: &str, command: &[&str]) {
        if let Some(redis) = &self.redis {
            let answer = redis.command_in(1, command).expect("redis answers");
            assert!(!answer.starts_with(b"-"), "{command:?}: {}", answer.escape_ascii());
        } else {
            let connection = rusqlite::Connection::open(self.path("meta.db")).expect("opens");
            assert!(connection.execute(sql, []).expect("runs") > 0, "{sql} changed nothing");
        }
    }

    /// How messages name a record: `table` on SQLite, `key` on Redis.
    pub fn record(&self, table: &str, key: &str) -> String {
        format!("record {}", if self.redis.is_some() { key } else { table })
    }

    /// A place in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The flags that keep a mount inside the folder.
    pub fn flags(&self) -> [String; 4] {
        let path = |name| self.path(name).display().to_string();
        ["--cache-dir".into(), path(&self.cache), "--log".into(), path("log")]
    }

    /// Mounts in the background, at `name` in the folder.
    pub fn mount(&mut self, name: &str, options: &[&str]) -> PathBuf {
        let point = self.path(name);
        let said = sluice()
            .args(["mount", "-d"])
            .args(self.flags())
            .args(options)
            .envs(self.environment.clone())
            .arg(&self.meta)
            .arg(&point)
            .output()
            .expect("the program starts");
        assert!(said.status.success(), "mount: {}\n{}", text(&said), self.log());
        self.mounts.push(point.clone());
        point
    }

    /// Mounts in the foreground, at `name` in the folder; the process is the test's.
    pub fn serve(&mut self, name: &str, options: &[&str]) -> (PathBuf, Child) {
        self.serve_by(sluice(), name, options)
    }

    /// The same by a command that runs the program with the arguments that are added to it.
    pub fn serve_by(&mut self, mut command: Command, name: &str, options: &[&str]) -> (PathBuf, Child) {
        let point = self.path(name);
        let child = command
            .arg("mount")
            .args(self.flags())
            .args(options)
            .envs(self.environment.clone())
            .arg(&self.meta)
            .arg(&point)
            .stderr(fs::File::create(self.path("log")).expect("a log"))
            .spawn()
            .expect("the program starts");
        self.mounts.push(point.clone());
        until("mount", || self.log().contains("is mounted on"));
        (point, child)
    }

    /// What the mounts said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Unmounts.
    pub fn umount(&mut self, point: &Path) {
        ok(&["umount", &point.display().to_string()]);
        assert!(!mounted(point));
        self.mounts.retain(|known| known != point);
    }

    /// `status` as JSON.
    pub fn status(&self) -> serde_json::Value {
        let output = sluice().args(["status", &self.meta]).output().expect("the program starts");
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&output.stdout).expect("status prints JSON")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        for point in &self.mounts {
            if mounted(point) {
                let _ = sluice().args(["umount", "--force"]).arg(point).output();
            }
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether something is mounted at `point`.
pub fn mounted(point: &Path) -> bool {
    let Some(wanted) = point.to_str().map(|point| point.replace(' ', "\\040")) else { return false };
    fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str())))
}

/// The process that serves what is mounted at `point`; its parent is the guardian.
pub fn server(point: &Path) -> Pid {
    let config = fs::read(point.join(".config")).expect("the mount answers");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let pid = config["Pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a process")
}

/// Kills a process and waits until it is gone or was waited for by nobody.
pub fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).expect("killed");
    let stat = format!("/proc/{pid}/stat");
    until("the process to end", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

/// Kills a guardian and the server of what is mounted at `point`.
pub fn kill_both(mut guardian: Child, point: &Path) {
    let server = server(point);
    guardian.kill().expect("killed");
    guardian.wait().expect("ended");
    kill(server);
}

/// Waits for the end of a process that must succeed.
pub fn ends_well(mut child: Child) {
    let mut status = None;
    until("the process to end", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}
