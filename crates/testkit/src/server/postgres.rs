//! A private PostgreSQL server.
//!
//! Its data directory is copied from a template, which is made once for each build directory.
//! PostgreSQL refuses to run as root: there it runs as `nobody`. What must stay true: nothing of
//! the machine's own configuration or data is touched.

use std::{
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{certificates, keeper::Keeper, port::free_port};

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Whether a commit waits for the disk, as servers do by default. Without it nothing is lost
    /// either when the server is killed, only when the machine fails.
    pub durable: bool,
    /// Whether it has a certificate for `localhost`, signed by the authority in `ca.pem` of its
    /// directory.
    pub tls: bool,
    /// Further settings (`max_connections=5`).
    pub settings: Vec<String>,
}

/// A running server. Dropping it kills the process and removes its data.
#[derive(Debug)]
pub struct Postgres {
    keeper: Keeper,
    port: u16,
    databases: AtomicU64,
    dir: TempDir,
}

/// Who may do everything.
pub const USER: &str = "sluice";
/// The password over TCP, with what a URL has to escape.
pub const PASSWORD: &str = "p@ss:w/rd";
/// The password as a URL has it.
pub const PASSWORD_IN_URL: &str = "p%40ss%3Aw%2Frd";

/// How long the server may take to answer.
const STARTUP: Duration = Duration::from_mins(1);
/// Whom the server runs as where this process is root.
const NOBODY: u32 = 65534;

/// One server for all tests of a process, which ends with it.
///
/// # Errors
/// If PostgreSQL is not installed or does not start.
pub fn postgres() -> io::Result<&'static Postgres> {
    static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
    let options =
        PostgresOptions { settings: vec!["max_connections=400".into()], ..PostgresOptions::default() };
    let started = SHARED.get_or_init(|| Postgres::start(&options).map_err(|e| e.to_string()));
    started.as_ref().map_err(|error| io::Error::other(error.clone()))
}

impl Postgres {
    /// Whether there is a PostgreSQL to start: tests without one say so and end.
    pub fn is_installed() -> bool {
        program("postgres").is_ok()
    }

    /// Starts a server.
    pub fn start(options: &PostgresOptions) -> io::Result<Self> {
        let dir = TempDir::with_prefix("postgres-")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        give(dir.path())?;
        let data = dir.path().join("data");
        run(Command::new("cp").arg("-a").arg(template()?).arg(&data))?;
        if options.tls {
            make_certificates(dir.path())?;
        }
        // Somebody else may take the free port before the server does.
        let mut tries = 0;
        loop {
            let port = free_port()?;
            let command = command(dir.path(), port, options)?;
            let mut keeper = Keeper::new(&dir.path().join("log"), dir.path(), &command)?;
            match start(&mut keeper, dir.path(), port).and_then(|()| keeper.adopt()) {
                Ok(()) => return Ok(Self { keeper, port, databases: AtomicU64::new(0), dir }),
                Err(error) if tries == 5 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Makes a database and answers its name, which no other has.
    pub fn database(&self) -> io::Result<String> {
        let name = format!("volume{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql_in("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// URL of a database over TCP.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.addr(), database)
    }

    /// URL of a database at another address, that of a proxy.
    pub fn url_at(&self, addr: SocketAddr, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD_IN_URL}@{addr}/{database}?sslmode=disable")
    }

    /// URL of a database over the unix socket, where no password is asked for.
    pub fn unix_url(&self, database: &str) -> String {
        format!("postgres://{USER}@/{database}?host={}&port={}", self.dir.path().display(), self.port)
    }

    /// Where the server keeps its data, its certificates, its socket and its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.keeper.pid()
    }

    /// Runs statements as the superuser and answers what they print, columns apart by bars.
    pub fn sql_in(&self, database: &str, text: &str) -> io::Result<String> {
        let mut client = client(self.dir.path(), self.port, database)?;
        let output = run(client.args(["-A", "-t", "-c", text]))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs the statements of a file, such as a dump.
    pub fn restore(&self, database: &str, file: &Path) -> io::Result<()> {
        run(client(self.dir.path(), self.port, database)?.arg("-f").arg(file)).map(drop)
    }

    /// How many deadlocks the server has found in a database. Its connections are ended: each
    /// reports what happened to it at its end at the latest.
    pub fn deadlocks(&self, database: &str) -> io::Result<u64> {
        let ended = "SELECT count(pg_terminate_backend(pid,10000)) FROM pg_stat_activity";
        self.sql_in("postgres", &format!("{ended} WHERE datname='{database}'"))?;
        let asked = format!("SELECT deadlocks FROM pg_stat_database WHERE datname='{database}'");
        self.sql_in("postgres", &asked)?.trim().parse().map_err(io::Error::other)
    }

    /// Ends the process at once, as a crash does (SIGKILL).
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Starts the process again, on the same port and the same data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        start(&mut self.keeper, self.dir.path(), self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the process and waits until it answers.
fn start(keeper: &mut Keeper, dir: &Path, port: u16) -> io::Result<()> {
    keeper.start()?;
    let until = Instant::now() + STARTUP;
    while run(client(dir, port, "postgres")?.args(["-c", "SELECT 1"])).is_err() {
        if keeper.has_ended() {
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            keeper.kill();
            // What a killed server leaves behind ends by itself, a moment later.
            if !log.contains("still in use") || Instant::now() > until {
                return Err(io::Error::other(format!("postgres does not answer: {log}")));
            }
            std::thread::sleep(Duration::from_millis(20));
            keeper.start()?;
        }
        if Instant::now() > until {
            keeper.kill();
            return Err(io::Error::other("postgres does not answer"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A client for statements, as the superuser.
fn client(dir: &Path, port: u16, database: &str) -> io::Result<Command> {
    let mut client = Command::new(program("psql")?);
    client.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
    client.arg("-h").arg(dir).args(["-p", &port.to_string()]);
    Ok(client)
}

fn command(dir: &Path, port: u16, options: &PostgresOptions) -> io::Result<Vec<OsString>> {
    let mut command = as_server();
    command.push(program("postgres")?.into());
    command.push("-D".into());
    command.push(dir.join("data").into());
    let mut settings = vec![
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={}", dir.display()),
        format!("fsync={}", if options.durable { "on" } else { "off" }),
        "dynamic_shared_memory_type=mmap".into(),
    ];
    if !options.durable {
        // Many of them run at once.
        settings.push("shared_buffers=64MB".into());
    }
    if options.tls {
        settings.push("ssl=on".into());
        settings.push(format!("ssl_cert_file={}", dir.join("server.pem").display()));
        settings.push(format!("ssl_key_file={}", dir.join("server.key").display()));
    }
    settings.extend(options.settings.iter().cloned());
    for setting in settings {
        command.push("-c".into());
        command.push(setting.into());
    }
    Ok(command)
}

/// What runs a program as the user that the server runs as.
fn as_server() -> Vec<OsString> {
    if !is_root() {
        return Vec::new();
    }
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    vec!["setpriv".into(), user.into(), group.into(), "--clear-groups".into()]
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Makes a file the server's own.
fn give(path: &Path) -> io::Result<()> {
    if is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

/// A program of PostgreSQL. Debian keeps the server's off the path.
fn program(name: &str) -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    installed.sort();
    installed.reverse();
    installed.push(Path::new("/usr/local/bin").join(name));
    installed.push(Path::new("/usr/bin").join(name));
    let found = installed.into_iter().find(|path| path.exists());
    found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{name} is not installed: make setup"))
    })
}

/// Runs a program to its end.
fn run(command: &mut Command) -> io::Result<Output> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let context = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{}: {context}", command.get_program().display())))
}

/// The data directory of a server that never ran, beside the programs of this build.
fn template() -> io::Result<PathBuf> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make_template().map_err(|error| error.to_string()));
    made.clone().map_err(io::Error::other)
}

fn make_template() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let build = this.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "target"));
    let parent = build.map_or_else(std::env::temp_dir, |target| target.join("templates"));
    fs::create_dir_all(&parent)?;
    let version = run(Command::new(program("postgres")?).arg("--version"))?.stdout;
    let version: String = String::from_utf8_lossy(&version)
        .chars()
        .take_while(|c| *c != '(')
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let finished = parent.join(format!("postgres-{version}-{}", if is_root() { "nobody" } else { "self" }));
    if finished.exists() {
        return Ok(finished);
    }
    let unfinished = TempDir::new_in(&parent)?;
    fs::set_permissions(unfinished.path(), fs::Permissions::from_mode(0o755))?;
    give(unfinished.path())?;
    let (data, password) = (unfinished.path().join("data"), unfinished.path().join("password"));
    fs::write(&password, PASSWORD)?;
    let mut words = as_server();
    words.push(program("initdb")?.into());
    let mut words = words.into_iter();
    let mut install = Command::new(words.next().unwrap_or_default());
    install.args(words).args(["-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"]);
    install.args(["--auth-local=trust", "--auth-host=scram-sha-256", "-D"]).arg(&data);
    install.arg(format!("--pwfile={}", password.display())).current_dir(unfinished.path());
    run(&mut install)?;
    // Somebody else may have been faster.
    match fs::rename(&data, &finished) {
        Err(error) if !finished.exists() => Err(error),
        _ => Ok(finished),
    }
}

fn make_certificates(dir: &Path) -> io::Result<()> {
    certificates::sign(dir, "DNS:localhost")?;
    fs::set_permissions(dir.join("server.key"), fs::Permissions::from_mode(0o600))?;
    give(&dir.join("server.key"))
}
