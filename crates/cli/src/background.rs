//! Starts the program again as a background process, and waits until that process reports that it
//! is ready or has failed.
//!
//! What must stay true: the caller learns whether the process works, and why not. A process that
//! did not report in time does not stay.

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::arguments;

/// Set for the process in the background.
const CHILD: &str = "SLUICE_BACKGROUND";
/// What it prints when it is ready.
const READY: &str = "ready";
/// Seconds to wait for that, unless `JFS_MOUNT_TIMEOUT` sets another limit.
const TIMEOUT: u64 = 60;

/// Whether this is the process in the background.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Begins the program again in the background with its output in `log`, and waits until it is ready
/// or has failed.
pub(crate) fn start(log: &Path) -> Result<ExitCode> {
    let file = open_log(log)?;
    let mut command = Command::new(env::current_exe()?);
    arguments::give(&mut command, &arguments::real());
    let mut child = command
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .context("cannot start a process in the background")?;
    let timeout = timeout();
    match first_word(&mut child, timeout) {
        Some(word) if word.0 == READY => Ok(ExitCode::SUCCESS),
        Some((line, rest)) => {
            let status = child.wait()?;
            let said = format!("{line}\n{rest}");
            let said = said.trim();
            if said.is_empty() {
                bail!("the process in the background ended ({status}); see {}", log.display());
            }
            errln!("{said}");
            Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
        }
        None => {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "not ready within {} s, so it was ended; see {}, or stay in the foreground (without -d). \
                 JFS_MOUNT_TIMEOUT sets the seconds",
                timeout.as_secs(),
                log.display()
            )
        }
    }
}

/// How long a mount may take to be ready.
pub(crate) fn timeout() -> Duration {
    let seconds = env::var("JFS_MOUNT_TIMEOUT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(TIMEOUT))
}

/// Makes `command` an ordinary process, not one that reports to this one.
pub(crate) fn no_child(command: &mut Command) {
    command.env_remove(CHILD);
}

/// The first line of output. If that is no success, also the rest.
fn first_word(child: &mut Child, timeout: Duration) -> Option<(String, String)> {
    let mut output = BufReader::new(child.stdout.take()?);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut line, mut rest) = (String::new(), String::new());
        let _ = output.read_line(&mut line);
        let line = line.trim().to_owned();
        if line != READY {
            let _ = output.read_to_string(&mut rest);
        }
        let _ = sender.send((line, rest));
    });
    receiver.recv_timeout(timeout).ok()
}

/// In the background: leaves the terminal's session. Elsewhere nothing.
pub(crate) fn detach() {
    if is_child() {
        // It fails only for the leader of a group, which a process just started is not.
        let _ = rustix::process::setsid();
    }
}

/// In the background: reports that it is ready. It reports nothing after that.
pub(crate) fn ready() {
    if !is_child() {
        return;
    }
    // The waiting process may have ended. The mount works all the same.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    // Everything relative was made absolute before; the directory may be unmounted.
    let _ = env::set_current_dir("/");
}

/// In the background: reports why it failed.
pub(crate) fn failed(message: &str) {
    if is_child() {
        let _ = writeln!(std::io::stdout(), "{message}");
    }
}

/// The default log file of a background process.
pub(crate) fn default_log() -> PathBuf {
    match env::var("HOME") {
        Ok(home) if !rustix::process::geteuid().is_root() => Path::new(&home).join(".sluice/sluice.log"),
        _ => "/var/log/sluice.log".into(),
    }
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        if !dir.exists() {
            tracing::info!(dir = %dir.display(), "the directory of the log did not exist and is made");
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot make {} for the log", dir.display()))?;
    }
    let open = File::options().append(true).create(true).open(path);
    open.with_context(|| format!("cannot write the log {}; name another with --log", path.display()))
}
