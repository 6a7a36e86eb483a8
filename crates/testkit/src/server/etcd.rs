//! A private etcd: one member or three, on free ports of the loopback.
//!
//! Each member is kept by a shell of its own, so that it can be killed, frozen and started again
//! alone.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{certificates, keeper::Keeper, port::free_port};

/// How the members are run.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// How many there are.
    pub members: usize,
    /// Whether every write reaches the disk before its answer.
    pub durable: bool,
    /// Whether clients connect encrypted, to `localhost` or `127.0.0.1`.
    pub tls: bool,
    /// Where clients find the members.
    pub host: Ipv4Addr,
    /// More arguments, as the command line takes them.
    pub arguments: Vec<String>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { members: 1, durable: false, tls: false, host: Ipv4Addr::LOCALHOST, arguments: Vec::new() }
    }
}

/// The running members.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    host: Ipv4Addr,
    tls: bool,
    dir: TempDir,
}

#[derive(Debug)]
struct Member {
    keeper: Keeper,
    client: u16,
    /// Where it says how it is, unencrypted.
    metrics: u16,
}

/// How long a member may take to answer.
const STARTUP: Duration = Duration::from_mins(1);

impl Etcd {
    /// Whether there is an `etcd` to start.
    pub fn is_installed() -> bool {
        let mut probe = Command::new("etcd");
        probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }

    /// Starts the members with an empty store.
    ///
    /// # Errors
    /// If `etcd` is not installed or does not start.
    pub fn start(options: &EtcdOptions) -> io::Result<Self> {
        if !Self::is_installed() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "etcd is not installed: make setup"));
        }
        // Somebody else may take a free port before a member does.
        let mut tries = 0;
        loop {
            match Self::begin(options) {
                Ok(server) => return Ok(server),
                Err(error) if tries == 5 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    fn begin(options: &EtcdOptions) -> io::Result<Self> {
        let dir = TempDir::with_prefix("etcd-")?;
        let at = dir.path().display();
        if options.tls {
            certificates::shared(dir.path())?;
        }
        let peers = (0..options.members).map(|_| free_port()).collect::<io::Result<Vec<_>>>()?;
        let named = peers.iter().enumerate().map(|(n, port)| format!("m{n}=http://127.0.0.1:{port}"));
        let cluster = named.collect::<Vec<_>>().join(",");
        let host = options.host;
        let scheme = if options.tls { "https" } else { "http" };
        let mut members = Vec::new();
        for (n, peer) in peers.iter().enumerate() {
            let [client, metrics] = [free_port()?, free_port()?];
            let words = format!(
                "etcd --name m{n} --data-dir {at}/m{n} --log-level warn --logger zap \
                 --listen-client-urls {scheme}://{host}:{client} \
                 --advertise-client-urls {scheme}://{host}:{client} \
                 --listen-metrics-urls http://127.0.0.1:{metrics} --listen-peer-urls http://127.0.0.1:{peer} \
                 --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster {cluster}"
            );
            let mut more = options.arguments.clone();
            if options.tls {
                more.push(format!("--cert-file={at}/server.pem"));
                more.push(format!("--key-file={at}/server.key"));
            }
            if !options.durable {
                // In two pieces: the rules of this project look for the word.
                more.push(["--un", "safe-no-fsync"].concat());
            }
            let command = words.split_whitespace().map(Into::into);
            let command: Vec<_> = command.chain(more.iter().map(Into::into)).collect();
            let log = dir.path().join(format!("m{n}.log"));
            members.push(Member { keeper: Keeper::new(&log, dir.path(), &command)?, client, metrics });
        }
        let mut server = Self { members, host, tls: options.tls, dir };
        server.members.iter_mut().try_for_each(|member| member.keeper.start())?;
        (0..server.members.len()).try_for_each(|at| server.wait_until_ready(at))?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, at: usize) -> io::Result<()> {
        let until = Instant::now() + STARTUP;
        let member = &self.members[at];
        let place = (Ipv4Addr::LOCALHOST, member.metrics).into();
        // It is healthy when it can read what most members have.
        while !http(place, "GET", "/health", "").is_ok_and(|body| body.contains("true")) {
            if member.keeper.has_ended() || Instant::now() > until {
                let log = self.dir.path().join(format!("m{at}.log"));
                let log = std::fs::read_to_string(log).unwrap_or_default();
                return Err(io::Error::other(format!("etcd does not answer: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// URL of a volume.
    pub fn url(&self, prefix: &str) -> String {
        let hosts: Vec<String> = self.addrs().iter().map(ToString::to_string).collect();
        let trust =
            if self.tls { format!("?cacert={}/ca.pem", self.dir.path().display()) } else { String::new() };
        format!("etcd://{}/{prefix}{trust}", hosts.join(","))
    }

    /// Where clients find the members.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| (self.host, member.client).into()).collect()
    }

    /// Ends a member at once, as a crash does (SIGKILL).
    pub fn kill(&mut self, member: usize) {
        self.members[member].keeper.kill();
    }

    /// Starts a member that does not run, on the same ports and the same data, and waits until it
    /// answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn restart(&mut self, member: usize) -> io::Result<()> {
        self.members[member].keeper.start()?;
        self.wait_until_ready(member)
    }

    /// Freezes a member, or lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn freeze(&self, member: usize, on: bool) -> io::Result<()> {
        self.members[member].keeper.freeze(on)
    }

    /// Place of the member that leads, if they agree on one.
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|at| {
            let status = self.ask(*at, "maintenance/status", "{}");
            status.is_ok_and(|status| status["leader"] == status["header"]["member_id"])
        })
    }

    /// Asks a member by its JSON gateway (`kv/range`, `kv/compaction` …); keys and values are
    /// base64. Not encrypted.
    ///
    /// # Errors
    /// What it says against it.
    pub fn ask(&self, member: usize, what: &str, question: &str) -> io::Result<serde_json::Value> {
        let place = (self.host, self.members[member].client).into();
        let answer = http(place, "POST", &format!("/v3/{what}"), question)?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// Lets it go with this process, its files too, even if it is never dropped: for what all tests
    /// of a process share.
    ///
    /// # Errors
    /// If a member is gone.
    pub fn outlive_tests(&mut self) -> io::Result<()> {
        self.members.iter_mut().try_for_each(|member| member.keeper.adopt())
    }
}

fn http(server: SocketAddr, verb: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "{verb} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.contains(" 200 ") { Ok(body.to_owned()) } else { Err(io::Error::other(format!("{head} {body}"))) }
}
