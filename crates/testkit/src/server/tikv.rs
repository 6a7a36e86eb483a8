//! A private TiKV: a real placement driver, and the TiKV service as `TiDB` implements it for its
//! tests.
//!
//! It is one store without Raft: it tests the protocol, transactions and regions, but not the
//! failover of a cluster. A separate shell starts and kills both servers. So they end when this
//! process ends, for any reason.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::port::free_port;

/// How the servers are run.
#[derive(Clone, Copy, Debug)]
pub struct TikvOptions {
    /// Regions are split when they are larger, bytes.
    pub region_size: u64,
    /// Whether every write reaches the disk before its answer.
    pub durable: bool,
    /// Where clients reach both servers, who hear of the store's address from the placement driver.
    pub host: Ipv4Addr,
}

impl Default for TikvOptions {
    /// Small regions, so that many transactions span several.
    fn default() -> Self {
        Self { region_size: 256 << 10, durable: false, host: Ipv4Addr::LOCALHOST }
    }
}

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TikvPart {
    /// The placement driver, which also gives the timestamps.
    Pd,
    /// The store.
    Kv,
}

/// A range of keys, as the placement driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TikvRegion {
    /// Its first key, in hexadecimal digits; empty: the first of all.
    pub start: String,
    /// The first key after it, in hexadecimal digits; empty: there is none.
    pub end: String,
    /// Grows with each split.
    pub version: u64,
}

/// The running servers.
#[derive(Debug)]
pub struct Tikv {
    keeper: Mutex<Keeper>,
    host: Ipv4Addr,
    pd: u16,
    kv: u16,
    admin: u16,
    dir: TempDir,
}

/// The shell that starts and kills the servers. With its end, or that of this process, they end and
/// their data goes.
#[derive(Debug)]
struct Keeper {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Started with the directory and the commands of both; each order is a line, each answer, too. The
/// embedded etcd of the placement driver needs the older rules for paths of Go's HTTP server.
const KEEPER: &str = r#"
dir=$0; pd=$1; kv=$2
export GODEBUG=httpmuxgo121=1
while read -r order; do
    case $order in
        "start pd") sh -c "exec $pd" > "$dir/pd.out" 2>&1 & pd_pid=$!; echo $pd_pid ;;
        "start kv") sh -c "exec $kv" > "$dir/kv.out" 2>&1 & kv_pid=$!; echo $kv_pid ;;
        "kill pd") kill -9 $pd_pid; wait $pd_pid; pd_pid=; echo gone ;;
        "kill kv") kill -9 $kv_pid; wait $kv_pid; kv_pid=; echo gone ;;
        "stop pd") kill -STOP $pd_pid; echo stopped ;;
        "stop kv") kill -STOP $kv_pid; echo stopped ;;
        "go on pd") kill -CONT $pd_pid; echo goes on ;;
        "go on kv") kill -CONT $kv_pid; echo goes on ;;
    esac
done 2>/dev/null
kill -9 $pd_pid $kv_pid 2>/dev/null
wait
rm -rf "$dir"
"#;

impl Keeper {
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

/// How long the servers may take to answer.
const STARTUP: Duration = Duration::from_mins(1);

/// Where `scripts/tools` put the two programs: beside the program that runs now.
fn programs() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let there = |dir: &PathBuf| dir.join("pd-server").exists() && dir.join("unitikv").exists();
    own.ancestors().map(|dir| dir.join("tools/bin")).find(there).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "pd-server and unitikv are not built: scripts/tools tikv")
    })
}

impl Tikv {
    /// Whether the programs are there.
    pub fn is_installed() -> bool {
        programs().is_ok()
    }

    /// Starts both servers with an empty store.
    ///
    /// # Errors
    /// If the programs are not built or do not start.
    pub fn start(options: TikvOptions) -> io::Result<Self> {
        let programs = programs()?;
        // Somebody else may take a free port before the servers do.
        let mut tries = 0;
        loop {
            let dir = TempDir::with_prefix("tikv-")?;
            let [pd, peer, kv, admin] = [free_port()?, free_port()?, free_port()?, free_port()?];
            let begun = Self::begin(dir, &programs, [pd, peer, kv, admin], options);
            match begun {
                Ok(server) => return Ok(server),
                Err(error) if tries == 5 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    fn begin(dir: TempDir, programs: &Path, ports: [u16; 4], options: TikvOptions) -> io::Result<Self> {
        let [pd, peer, kv, admin] = ports;
        let (at, bin, host) = (dir.path().display(), programs.display(), options.host);
        let pd_command = format!(
            "{bin}/pd-server --name=pd --data-dir={at}/pd --client-urls=http://{host}:{pd} \
             --peer-urls=http://127.0.0.1:{peer} --log-file={at}/pd.log -L warn"
        );
        let sync = if options.durable { " -sync" } else { "" };
        let kv_command = format!(
            "{bin}/unitikv -pd {host}:{pd} -addr {host}:{kv} -admin 127.0.0.1:{admin} -data {at}/kv \
             -region-size {}{sync}",
            options.region_size
        );
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", KEEPER]).arg(dir.path()).arg(&pd_command).arg(&kv_command);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (shell.stdin.take(), shell.stdout.take());
        let answers = BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?);
        let keeper = Mutex::new(Keeper { shell, orders, answers });
        let server = Self { keeper, host, pd, kv, admin, dir };
        server.restart(TikvPart::Pd)?;
        server.restart(TikvPart::Kv)?;
        Ok(server)
    }

    /// URL of a volume whose keys begin with `prefix`.
    pub fn url(&self, prefix: &str) -> String {
        format!("tikv://{}/{prefix}", self.pd_addr())
    }

    /// Address of the placement driver.
    pub fn pd_addr(&self) -> SocketAddr {
        (self.host, self.pd).into()
    }

    /// Ends one server at once, as a crash does (SIGKILL). Unlike TiKV this store keeps locks in
    /// memory only: of a commit that was answered a moment ago, keys whose second phase still runs
    /// are lost with it. Read them first.
    pub fn kill(&self, part: TikvPart) {
        let _ = self.keeper.lock().order(&format!("kill {}", name(part)));
    }

    /// Freezes one server.
    pub fn freeze(&self, part: TikvPart) {
        let _ = self.keeper.lock().order(&format!("stop {}", name(part)));
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self, part: TikvPart) {
        let _ = self.keeper.lock().order(&format!("go on {}", name(part)));
    }

    /// Starts one server that does not run, on the same ports and the same data, and waits until it
    /// answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn restart(&self, part: TikvPart) -> io::Result<()> {
        let pid = self.keeper.lock().order(&format!("start {}", name(part)))?;
        let until = Instant::now() + STARTUP;
        loop {
            let ready = match part {
                TikvPart::Pd => {
                    http(self.pd_addr(), "/pd/api/v1/leader").is_ok_and(|body| body.contains("\"name\""))
                }
                TikvPart::Kv => {
                    self.notify("/fault").is_ok() && TcpStream::connect((self.host, self.kv)).is_ok()
                }
            };
            if ready {
                return Ok(());
            }
            if has_ended(&pid) || Instant::now() > until {
                let log = std::fs::read_to_string(self.dir.path().join(format!("{}.out", name(part))));
                let log = log.unwrap_or_default();
                return Err(io::Error::other(format!("the {} does not answer: {log}", name(part))));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets the next `n` requests of a kind (`KvPrewrite`, `KvCommit`, `KvBatchGet` …; all if
    /// empty) that have a key beginning with `key` go wrong: `drop-before`, `drop-after` (done, but
    /// the answer is lost), `busy`, `notleader`, `epoch`, or `delay` with a time (`200ms`).
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn fault(&self, method: &str, key: &[u8], action: &str, n: i32, delay: &str) -> io::Result<()> {
        let key = key.iter().fold(String::new(), |key, byte| key + &format!("%{byte:02x}"));
        let query = format!("/fault?method={method}&key={key}&action={action}&n={n}&delay={delay}");
        self.notify(&query).map(drop)
    }

    /// Forgets all faults, and the numbers of requests.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn clear_faults(&self) -> io::Result<()> {
        self.notify("/fault?clear=1").map(drop)
    }

    /// How many requests of each kind there were.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn requests(&self) -> io::Result<Vec<(String, u64)>> {
        let body = self.notify("/fault")?;
        let counts = body.lines().filter_map(|line| {
            let (method, count) = line.strip_prefix("calls ")?.split_once(' ')?;
            Some((method.to_owned(), count.trim().parse().ok()?))
        });
        Ok(counts.collect())
    }

    /// The regions that the placement driver knows, in the order of their keys.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn regions(&self) -> io::Result<Vec<TikvRegion>> {
        let body = http(self.pd_addr(), "/pd/api/v1/regions")?;
        let notice: serde_json::Value = serde_json::from_str(&body)?;
        let text =
            |region: &serde_json::Value, name: &str| region[name].as_str().unwrap_or_default().to_owned();
        let mut regions: Vec<TikvRegion> = notice["regions"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .map(|region| TikvRegion {
                start: text(region, "start_key"),
                end: text(region, "end_key"),
                version: region["epoch"]["version"].as_u64().unwrap_or_default(),
            })
            .collect();
        regions.sort_by(|a, b| a.start.cmp(&b.start));
        Ok(regions)
    }

    /// Gives the store an order of ours.
    fn notify(&self, path: &str) -> io::Result<String> {
        http((Ipv4Addr::LOCALHOST, self.admin).into(), path)
    }
}

fn name(part: TikvPart) -> &'static str {
    match part {
        TikvPart::Pd => "pd",
        TikvPart::Kv => "kv",
    }
}

fn http(server: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.contains(" 200 ") { Ok(body.to_owned()) } else { Err(io::Error::other(head.to_owned())) }
}

/// Whether a process is gone, or waits to be taken note of.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.ok().is_none_or(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}
