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

use super::{free_port, keeper::Keeper};

/// How the server is run.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Whether every write reaches the disk before its answer (`appendonly yes`, `appendfsync always`), so that
    /// nothing is lost when the server is killed.
    pub durable: bool,
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
        if !Self::is_installed() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "redis-server is not installed: make setup"));
        }
        let dir = TempDir::with_prefix("redis-")?;
        let command = ["redis-server".into(), dir.path().join("redis.conf").into_os_string()];
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
        let mut config = format!(
            "port {}\nbind 127.0.0.1\nprotected-mode no\nunixsocket {}\nunixsocketperm 700\ndir {}\nsave \"\"\n",
            self.port,
            self.socket().display(),
            self.dir.path().display(),
        );
        if self.options.durable {
            config.push_str("appendonly yes\nappendfsync always\n");
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
        format!("redis://{}/{db}", self.addr())
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

    /// Sends one command (`["FLUSHALL"]`) and answers the first bytes that come back, as the protocol has them.
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
    Ok(answer)
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
