//! A private Redis server.
//!
//! A shell of its own starts and kills it: a process that forks while it has files open in a FUSE mount waits for the
//! mount to flush them in the child, and the mount may be waiting for the very server that is to be started.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::free_port;

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
    pid: Option<u32>,
    port: u16,
    options: RedisOptions,
    dir: TempDir,
}

/// The shell that starts and kills the server. With its end, or that of this process, the server ends.
#[derive(Debug)]
struct Keeper {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Started with the configuration and the log; each order is a line, each answer, too.
const KEEPER: &str = r#"
while read -r order; do
    case $order in
        start) redis-server "$0" > "$1" 2>&1 & pid=$!; echo $pid ;;
        kill) kill -9 $pid; wait $pid; pid=; echo gone ;;
    esac
done 2>/dev/null
kill -9 $pid 2>/dev/null
"#;

impl Keeper {
    fn start(config: &Path, log: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", KEEPER]).arg(config).arg(log);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (shell.stdin.take(), shell.stdout.take());
        let answers = BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Self { shell, orders, answers })
    }

    fn order(&mut self, what: &str) -> io::Result<String> {
        let orders = self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.write_all(format!("{what}\n").as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.shell.wait();
    }
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
        let keeper = Keeper::start(&dir.path().join("redis.conf"), &dir.path().join("redis.log"))?;
        let mut server = Self { keeper, pid: None, port: 0, options, dir };
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
        let pid = self.keeper.order("start")?;
        self.pid = Some(pid.parse().map_err(io::Error::other)?);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let until = Instant::now() + STARTUP;
        loop {
            if self.command(&["PING"]).is_ok_and(|answer| answer.starts_with(b"+PONG")) {
                return Ok(());
            }
            if self.has_ended() || Instant::now() > until {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                self.kill();
                return Err(io::Error::other(format!("redis-server does not answer: {log}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether its process is gone, or waits to be taken note of.
    fn has_ended(&self) -> bool {
        let stat = self.pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_none_or(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
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
        self.pid
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
        if self.pid.take().is_some() {
            let _ = self.keeper.order("kill");
        }
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
