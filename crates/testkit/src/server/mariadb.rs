//! A private MariaDB server.
//!
//! Its data directory is copied from a template, which is made once for each build directory. What
//! must stay true: nothing of the machine's own configuration or data is touched.

use std::{
    ffi::OsString,
    fs, io,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{keeper::Keeper, port::free_port};

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct MariadbOptions {
    /// Whether a commit waits for the disk, as servers do by default. Without it nothing is lost
    /// either when the server is killed, only when the machine fails.
    pub durable: bool,
    /// Further arguments (`--max-connections=5`).
    pub arguments: Vec<String>,
}

/// A running server. Dropping it kills the process and removes its data.
#[derive(Debug)]
pub struct Mariadb {
    keeper: Keeper,
    port: u16,
    databases: AtomicU64,
    dir: TempDir,
}

/// Who may do everything.
pub const USER: &str = "sluice";
/// The password, with what a URL has to escape.
pub const PASSWORD: &str = "p@ss:w/rd";
/// The password as a URL has it.
pub const PASSWORD_IN_URL: &str = "p%40ss%3Aw%2Frd";

/// How long the server may take to answer.
const STARTUP: Duration = Duration::from_mins(1);

/// One server for all tests of a process, which ends with it.
///
/// # Errors
/// If `mariadbd` is not installed or does not start.
pub fn mariadb() -> io::Result<&'static Mariadb> {
    static SHARED: OnceLock<Result<Mariadb, String>> = OnceLock::new();
    let started =
        SHARED.get_or_init(|| Mariadb::start(&MariadbOptions::default()).map_err(|e| e.to_string()));
    started.as_ref().map_err(|error| io::Error::other(error.clone()))
}

impl Mariadb {
    /// Whether there is a `mariadbd` to start: tests without one say so and end.
    pub fn is_installed() -> bool {
        let mut probe = Command::new("mariadbd");
        probe.args(["--no-defaults", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }

    /// Starts a server.
    pub fn start(options: &MariadbOptions) -> io::Result<Self> {
        if !Self::is_installed() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "mariadbd is not installed: make setup"));
        }
        let dir = TempDir::with_prefix("mariadb-")?;
        copy(&template()?, &dir.path().join("data"))?;
        // Its own: a server that starts deletes the temporary tables that it finds, those of others
        // too.
        fs::create_dir(dir.path().join("tmp"))?;
        let user = format!(
            "CREATE USER IF NOT EXISTS {USER} IDENTIFIED BY '{PASSWORD}';\n\
             GRANT ALL ON *.* TO {USER} WITH GRANT OPTION;\n\
             DELETE FROM mysql.global_priv WHERE User='';\nFLUSH PRIVILEGES;\n"
        );
        fs::write(dir.path().join("init.sql"), user)?;
        // Somebody else may take the free port before the server does.
        let mut tries = 0;
        loop {
            let port = free_port()?;
            let mut keeper =
                Keeper::new(&dir.path().join("log"), dir.path(), &arguments(dir.path(), port, options))?;
            match run(&mut keeper, dir.path()).and_then(|()| keeper.adopt()) {
                Ok(()) => return Ok(Self { keeper, port, databases: AtomicU64::new(0), dir }),
                Err(error) if tries == 5 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// Path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Makes a database and answers its name, which no other has.
    pub fn database(&self) -> io::Result<String> {
        let name = format!("volume{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// URL of a database over TCP.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.addr(), database)
    }

    /// URL of a database at another address, that of a proxy.
    pub fn url_at(&self, addr: SocketAddr, database: &str) -> String {
        format!("mysql://{USER}:{PASSWORD_IN_URL}@({addr})/{database}")
    }

    /// URL of a database over the unix socket.
    pub fn unix_url(&self, database: &str) -> String {
        format!("mysql://{USER}:{PASSWORD_IN_URL}@unix({})/{database}", self.socket().display())
    }

    /// Where the server keeps its data, its certificates and its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.keeper.pid()
    }

    /// Runs statements as the superuser and answers what they print, columns apart by tabs.
    pub fn sql(&self, text: &str) -> io::Result<String> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-u", "root", "-N", "-B", "-S"]).arg(self.socket()).args(["-e", text]);
        let output = client.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// One of the server's own counters (`Innodb_deadlocks`, `Questions`).
    pub fn status(&self, name: &str) -> io::Result<u64> {
        let shown = self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        let value = shown.split_whitespace().last().unwrap_or_default();
        value.parse().map_err(|_| io::Error::other(format!("no counter is called {name}")))
    }

    /// The server's report of each deadlock since it started. It writes all of them with
    /// `--innodb-print-all-deadlocks=1`.
    pub fn deadlocks(&self) -> io::Result<Vec<String>> {
        let log = fs::read(self.dir.path().join("log"))?;
        let log = String::from_utf8_lossy(&log);
        Ok(log.split("*** (1) TRANSACTION:").skip(1).map(str::to_owned).collect())
    }

    /// Ends the process at once, as a crash does (SIGKILL).
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Starts the process again, on the same port and the same data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        run(&mut self.keeper, self.dir.path())
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the process and waits until it answers.
fn run(keeper: &mut Keeper, dir: &Path) -> io::Result<()> {
    let _ = fs::remove_file(dir.join("sock"));
    keeper.start()?;
    let until = Instant::now() + STARTUP;
    while !greets(&dir.join("sock")) {
        if keeper.has_ended() || Instant::now() > until {
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            keeper.kill();
            return Err(io::Error::other(format!("mariadbd does not answer: {log}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn arguments(dir: &Path, port: u16, options: &MariadbOptions) -> Vec<OsString> {
    let at = |name: &str, file: &str| format!("--{name}={}", dir.join(file).display());
    let mut arguments = vec!["mariadbd".into(), "--no-defaults".into()];
    if is_root() {
        arguments.push("--user=root".to_owned());
    }
    arguments.extend([
        at("datadir", "data"),
        at("tmpdir", "tmp"),
        at("socket", "sock"),
        at("pid-file", "pid"),
        at("init-file", "init.sql"),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--skip-name-resolve".into(),
        "--skip-log-bin".into(),
    ]);
    if !options.durable {
        arguments
            .extend(["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"].map(Into::into));
    }
    arguments.extend(options.arguments.iter().cloned());
    arguments.into_iter().map(OsString::from).collect()
}

/// Whether the server greets who connects, as it does when it is ready.
fn greets(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    // A greeting: three bytes of length, a number, the version of the protocol.
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).is_ok() && greeting[4] == 10
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The data directory of a server that never ran, beside the programs of this build.
fn template() -> io::Result<PathBuf> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make_template().map_err(|error| error.to_string()));
    made.clone().map_err(io::Error::other)
}

fn make_template() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let build = program.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "target"));
    let parent = build.map_or_else(std::env::temp_dir, |target| target.join("templates"));
    fs::create_dir_all(&parent)?;
    let version = Command::new("mariadbd").args(["--no-defaults", "--version"]).output()?.stdout;
    let version: String =
        String::from_utf8_lossy(&version).chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let finished = parent.join(format!("mariadb-{version}"));
    if finished.exists() {
        return Ok(finished);
    }
    let unfinished = TempDir::new_in(&parent)?;
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    install.args(["--skip-test-db", "--innodb-log-file-size=32M"]);
    for place in ["datadir", "tmpdir"] {
        install.arg(format!("--{place}={}", unfinished.path().display()));
    }
    if is_root() {
        install.arg("--user=root");
    }
    let output = install.output()?;
    if !output.status.success() {
        let context = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("mariadb-install-db failed: {context}")));
    }
    // Somebody else may have been faster.
    match fs::rename(unfinished.path(), &finished) {
        Err(error) if !finished.exists() => Err(error),
        _ => Ok(finished),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
