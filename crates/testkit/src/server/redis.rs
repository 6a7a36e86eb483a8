//! A private Redis server.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{certificates, keeper::Keeper, port::free_port};

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Whether every write reaches the disk before its answer (`appendonly yes`, `appendfsync
    /// always`), so that nothing is lost when the server is killed.
    pub durable: bool,
    /// Whether it takes encrypted connections only, over TCP: see [`Redis::authority`].
    pub tls: bool,
    /// Further lines of configuration, each `NAME VALUE`.
    pub config: Vec<String>,
}

/// A running server. Dropping it kills the process and removes its data.
#[derive(Debug)]
pub struct Redis {
    keeper: Keeper,
    port: u16,
    options: RedisOptions,
    dir: TempDir,
}

/// How long servers may take to do something together. Sentinels that were held up do nothing for
/// half a minute.
pub(super) const TOGETHER: Duration = Duration::from_secs(90);
/// How long the server may take to answer.
const STARTUP: Duration = Duration::from_secs(30);

/// A running server that keeps nothing on disk.
///
/// # Errors
/// If `redis-server` is not installed or does not start.
pub fn redis() -> io::Result<Redis> {
    Redis::start(RedisOptions::default())
}

impl Redis {
    /// Whether there is a `redis-server` to start: tests without one say so and end.
    pub fn is_installed() -> bool {
        let mut probe = Command::new("redis-server");
        probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }

    /// Starts a server.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        Self::start_as(options, &[])
    }

    /// Starts a server with arguments of its own.
    pub(super) fn start_as(options: RedisOptions, arguments: &[&str]) -> io::Result<Self> {
        if !Self::is_installed() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "redis-server is not installed: make setup"));
        }
        let dir = TempDir::with_prefix("redis-")?;
        let mut command = vec!["redis-server".into(), dir.path().join("redis.conf").into_os_string()];
        command.extend(arguments.iter().map(Into::into));
        if options.tls {
            certificates::shared(dir.path())?;
        }
        let keeper = Keeper::new(&dir.path().join("redis.log"), dir.path(), &command)?;
        let mut server = Self { keeper, port: 0, options, dir };
        // Somebody else may take the free port before the server does.
        let mut tries = 0;
        loop {
            server.port = free_port()?;
            match server.run() {
                Ok(()) => return Ok(server),
                Err(error) if tries == 5 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let port = if self.options.tls { "port 0\ntls-port" } else { "port" };
        let mut config = format!(
            "{port} {}\nbind 127.0.0.1\nprotected-mode no\nunixsocket {}\nunixsocketperm 700\ndir {}\nsave \"\"\n",
            self.port,
            self.socket().display(),
            self.dir.path().display(),
        );
        if self.options.durable {
            config.push_str("appendonly yes\nappendfsync always\n");
        }
        if self.options.tls {
            config.push_str(TLS);
        }
        for line in &self.options.config {
            config.push_str(line);
            config.push('\n');
        }
        let path = self.dir.path().join("redis.conf");
        std::fs::write(&path, config)?;
        let _ = std::fs::remove_file(self.socket());
        self.keeper.start()?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let until = Instant::now() + STARTUP;
        loop {
            if self.command(&["PING"]).is_ok_and(|answer| answer.starts_with(b"+PONG")) {
                return Ok(());
            }
            if self.keeper.has_ended() || Instant::now() > until {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                self.kill();
                return Err(io::Error::other(format!("redis-server does not answer: {log}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("redis.log")
    }

    /// File with the authority that signed the certificate of a server with `tls`, for `localhost`
    /// and `127.0.0.1`.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// URL of database `db` over TCP.
    pub fn url(&self, db: u8) -> String {
        let scheme = if self.options.tls { "rediss" } else { "redis" };
        format!("{scheme}://{}/{db}", self.addr())
    }

    /// URL of database `db` over the unix socket.
    pub fn unix_url(&self, db: u8) -> String {
        format!("unix://{}?db={db}", self.socket().display())
    }

    /// Where the server keeps its data.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.keeper.pid()
    }

    /// A line of its INFO, if it answers.
    pub fn info(&self, name: &str) -> Option<String> {
        let info = String::from_utf8(self.command(&["INFO", "everything"]).ok()?).ok()?;
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(of, _)| *of == name).map(|(_, value)| value.trim().to_owned())
    }

    /// Freezes the process, or lets it go on.
    pub fn freeze(&self, on: bool) -> io::Result<()> {
        self.keeper.freeze(on)
    }

    /// Sends one command (`["FLUSHALL"]`) and answers the first bytes that come back, as the
    /// protocol has them.
    pub fn command(&self, words: &[&str]) -> io::Result<Vec<u8>> {
        self.command_in(0, words)
    }

    /// As [`Self::command`], in database `db`.
    pub fn command_in(&self, db: u8, words: &[&str]) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(STARTUP))?;
        if db > 0 {
            ask(&mut stream, &["SELECT", &db.to_string()])?;
        }
        ask(&mut stream, words)
    }

    /// Lets it go with this process, its files too, even if it is never dropped: for what all tests
    /// of a process share.
    pub fn outlive_tests(&mut self) -> io::Result<()> {
        self.keeper.adopt()
    }

    /// Adds a line of configuration, which counts from the next [`Self::restart`] on.
    pub(super) fn configure(&mut self, line: &str) {
        self.options.config.push(line.into());
    }

    /// Ends the process at once, as a crash does (SIGKILL).
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Starts the process again, on the same ports and the same data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        self.run()
    }
}

/// What a server with `tls` is told: servers of one test trust each other.
const TLS: &str = "tls-cert-file server.pem\ntls-key-file server.key\ntls-ca-cert-file ca.pem\ntls-auth-clients no\n\
                   tls-replication yes\ntls-cluster yes\n";

fn ask(stream: &mut UnixStream, words: &[&str]) -> io::Result<Vec<u8>> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        for part in ["$", &word.len().to_string(), "\r\n", word, "\r\n"] {
            request.push_str(part);
        }
    }
    stream.write_all(request.as_bytes())?;
    let mut answer = vec![0; 64 * 1024];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    // A long text comes in several pieces.
    if let Some(announced) = announced(&answer) {
        let mut rest = vec![0; announced.saturating_sub(length)];
        stream.read_exact(&mut rest)?;
        answer.extend(rest);
    }
    Ok(answer)
}

/// How long an answer that is one text is as a whole.
fn announced(answer: &[u8]) -> Option<usize> {
    let line = answer.strip_prefix(b"$")?.split(|byte| *byte == b'\r').next()?;
    let length: usize = std::str::from_utf8(line).ok()?.parse().ok()?;
    Some(1 + line.len() + 2 + length + 2)
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
