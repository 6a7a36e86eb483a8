//! The shell that starts and kills a server of a test.
//!
//! A process may fork while it has files open in a FUSE mount. Then the child waits until the mount
//! has flushed them, and the mount may be waiting for the server that the test is starting. So a
//! shell that was started earlier forks instead. What must stay true: when the shell or this
//! process ends, the server ends.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

/// A shell with a command that it starts and kills by order.
#[derive(Debug)]
pub(super) struct Keeper {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pid: Option<u32>,
}

/// Its arguments are the log, a directory that goes with it, and the command; each order is a line,
/// each answer, too.
const SCRIPT: &str = r#"
log=$0 dir=$1 adopted=
shift
while read -r order; do
    case $order in
        start) "$@" > "$log" 2>&1 & pid=$!; echo $pid ;;
        kill) kill -9 $pid; wait $pid; pid=; echo gone ;;
        adopt) adopted=$dir; echo mine ;;
    esac
done 2>/dev/null
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
[ -z "$adopted" ] || rm -rf "$adopted"
"#;

impl Keeper {
    /// A shell for `command`, which writes to `log`.
    pub(super) fn new(log: &Path, dir: &Path, command: &[OsString]) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", SCRIPT]).arg(log).arg(dir).args(command);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (shell.stdin.take(), shell.stdout.take());
        let answers = BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Self { shell, orders, answers, pid: None })
    }

    fn order(&mut self, what: &str) -> io::Result<String> {
        let orders = self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        orders.write_all(format!("{what}\n").as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }

    /// Starts the command.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let pid = self.order("start")?;
        self.pid = Some(pid.parse().map_err(io::Error::other)?);
        Ok(())
    }

    /// Makes it remove the directory at its end: also when this process ends without dropping
    /// anything.
    pub(super) fn adopt(&mut self) -> io::Result<()> {
        self.order("adopt").map(drop)
    }

    /// Ends it as a crash does (SIGKILL), if it runs.
    pub(super) fn kill(&mut self) {
        if self.pid.take().is_some() {
            let _ = self.order("kill");
        }
    }

    /// Freezes its process, or lets it go on. No process is started for that: if a child ends while
    /// another one is being started, the kernel interrupts a call of any thread.
    pub(super) fn freeze(&self, on: bool) -> io::Result<()> {
        let pid =
            self.pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(pid, if on { Signal::STOP } else { Signal::CONT })?)
    }

    /// Process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Whether its process has ended, reaped or not.
    pub(super) fn has_ended(&self) -> bool {
        let stat = self.pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_none_or(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.shell.wait();
    }
}
