//! `sluice debug`: collects the information that is needed to examine a problem with a mount.
//!
//! What must stay true: the output contains no secret. All of it passes through `scrub`, and the
//! environment of the mount process is not read.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use sluice_types::{Clock, SystemClock};

use crate::{arguments::without_password, flags::UnusedFlags, internal_file, volume};

/// Most bytes of a log that are looked at for its last lines.
const MOST: u64 = 64 << 20;
/// Members of settings, in lower case, whose values are shown to nobody.
const SECRETS: [&str; 6] = ["secret", "token", "password", "passphrase", "encryptkey", "privatekey"];
const MASK: &str = "****";

/// Collect what is needed to look into a problem
#[derive(Args)]
#[command(after_help = "Example:
  sluice debug /mnt/vol --out-dir /tmp/debug --limit 20000

It writes a directory, and the same as an archive to pass on: versions, settings, the numbers of the
mount at two moments, the end of its log, and what the system says of the process. Passwords and keys
are masked; names of hosts, buckets and directories are not.")]
pub(crate) struct Debug {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// Where the directory and the archive are made
    #[arg(long, value_name = "DIR", default_value = "./debug")]
    out_dir: PathBuf,
    /// Last lines of the log to take
    #[arg(long, value_name = "N", default_value_t = 5000)]
    limit: usize,
    /// Seconds between the two looks at the numbers
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=3600))]
    stats_sec: u64,
    // Of the runtime of another language.
    #[arg(long, value_name = "SECONDS", hide = true)]
    trace_sec: Option<u64>,
    #[arg(long, value_name = "SECONDS", hide = true)]
    profile_sec: Option<u64>,
}

/// The directory that is filled.
struct Bundle {
    dir: PathBuf,
}

impl Debug {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut unused = UnusedFlags::default();
        unused.note("--trace-sec", self.trace_sec.is_some());
        unused.note("--profile-sec", self.profile_sec.is_some());
        unused.check()?;
        let mountpoint = internal_file::mount_of(&self.mountpoint)?;
        let bundle = Bundle::new(&self.out_dir, &mountpoint)?;
        bundle.put("system.txt", &system(&mountpoint))?;
        let config = internal_file::read(&mountpoint, "config");
        let pid = config.as_ref().ok().and_then(|text| pid(text));
        // A mount whose database is away may not answer; all else is wanted all the more then.
        bundle.put("config.json", &config.map_or_else(|error| unreadable(&error), |text| settings(&text)))?;
        if let Some(pid) = pid {
            bundle.put("process.txt", &process(pid))?;
            bundle.put("log.txt", &log(pid, self.limit))?;
        }
        bundle.put("stats.1.txt", &stats(&mountpoint))?;
        thread::sleep(Duration::from_secs(self.stats_sec));
        bundle.put("stats.2.txt", &stats(&mountpoint))?;
        let archive = bundle.pack()?;
        outln!("{}", archive.display());
        Ok(ExitCode::SUCCESS)
    }
}

impl Bundle {
    fn new(out: &Path, mountpoint: &Path) -> Result<Self> {
        let name = mountpoint.display().to_string().trim_matches('/').replace('/', "-");
        let time = SystemClock.now().utc("%Y%m%d%H%M%S%.3f").replace('.', "");
        let dir = out.join(format!("{name}-{time}"));
        // For the owner only: paths of other users may be in it.
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.with_context(|| format!("cannot make {}; name another place with --out-dir", dir.display()))?;
        Ok(Self { dir })
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, scrub(text)).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes the directory as an archive beside it.
    fn pack(&self) -> Result<PathBuf> {
        let mut name = self.dir.clone().into_os_string();
        name.push(".tar.gz");
        let path = PathBuf::from(name);
        let about = || format!("cannot write {}", path.display());
        let file = File::create(&path).with_context(about)?;
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        let inside = self.dir.file_name().unwrap_or_default();
        archive.append_dir_all(inside, &self.dir).with_context(about)?;
        archive.into_inner().and_then(GzEncoder::finish).with_context(about)?;
        Ok(path)
    }
}

/// What goes into a file instead of what could not be read.
fn unreadable(error: &dyn std::fmt::Display) -> String {
    format!("cannot be read: {error}\n")
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| unreadable(&error))
}

fn stats(mountpoint: &Path) -> String {
    internal_file::read(mountpoint, "stats").unwrap_or_else(|error| unreadable(&error))
}

fn pid(config: &str) -> Option<u64> {
    serde_json::from_str::<Value>(config).ok()?.get("Pid")?.as_u64()
}

/// The machine, and what is mounted.
fn system(mountpoint: &Path) -> String {
    let lines = |path: &str, prefixes: &[&str]| -> String {
        let text = read(path);
        let wanted = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
        text.lines().filter(wanted).fold(String::new(), |all, line| all + line + "\n")
    };
    let mounts = read("/proc/self/mountinfo");
    let volumes = mounts.lines().filter(|line| line.contains(" fuse."));
    [
        format!("sluice {}\n", volume::VERSION),
        format!("time {}\n", SystemClock.now().utc("%Y-%m-%dT%H:%M:%SZ")),
        format!("host {}\n", volume::host_name()),
        format!("mount point {}\n", mountpoint.display()),
        format!("processors {}\n", thread::available_parallelism().map_or(0, usize::from)),
        read("/proc/version"),
        lines("/etc/os-release", &["PRETTY_NAME="]),
        lines("/proc/meminfo", &["MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Dirty"]),
        format!("load {}", read("/proc/loadavg")),
        format!("uptime {}", read("/proc/uptime")),
        "mounts:\n".to_owned(),
        volumes.fold(String::new(), |all, line| all + line + "\n"),
    ]
    .concat()
}

/// What the system says of a process.
fn process(pid: u64) -> String {
    let place = PathBuf::from(format!("/proc/{pid}"));
    let command = fs::read(place.join("cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).map(|word| without_password(&String::from_utf8_lossy(word)));
    let mut parts = vec![format!("command: {}\n", words.collect::<Vec<_>>().join(" "))];
    let threads = fs::read_dir(place.join("task")).into_iter().flatten().flatten();
    let names = threads.map(|task| read(task.path().join("comm")).trim().to_owned());
    parts.push(format!("threads: {}\n", names.collect::<Vec<_>>().join(" ")));
    for part in ["status", "limits", "io"] {
        parts.push(format!("\n{part}:\n{}", read(place.join(part))));
    }
    parts.concat()
}

/// The last lines of what a process writes to its standard error, if that is a file.
fn log(pid: u64, limit: usize) -> String {
    let open = || -> Result<String> {
        let path = fs::read_link(format!("/proc/{pid}/fd/2"))?;
        if !path.is_file() {
            return Ok(format!("the log goes to {}, which keeps nothing\n", path.display()));
        }
        let lines = tail(File::open(&path)?, limit)?;
        Ok(format!("the last lines of {}:\n{lines}", path.display()))
    };
    open().unwrap_or_else(|error| unreadable(&error))
}

fn tail(mut file: File, limit: usize) -> Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let (mut lines, mut line) = (VecDeque::new(), Vec::new());
    let mut reader = BufReader::new(file.take(MOST));
    while reader.read_until(b'\n', &mut line)? > 0 {
        lines.push_back(String::from_utf8_lossy(&line).into_owned());
        if lines.len() > limit {
            lines.pop_front();
        }
        line.clear();
    }
    Ok(Vec::from(lines).concat())
}

/// Settings with the values of secret members masked.
fn settings(text: &str) -> String {
    let Ok(mut config) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    mask(&mut config);
    serde_json::to_string_pretty(&config).unwrap_or_default() + "\n"
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if is_secret(name) => {
                        if !text.is_empty() {
                            MASK.clone_into(text);
                        }
                    }
                    value => mask(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Text with passwords of URLs masked, and values of flags and settings that are secret.
fn scrub(text: &str) -> String {
    text.split_inclusive('\n').map(scrub_line).collect()
}

fn scrub_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut secret_next = false;
    for word in line.split_inclusive(separates) {
        let bare = word.trim_end_matches(separates);
        let rest = &word[bare.len()..];
        if bare.is_empty() || bare == ":" {
            out += word;
            continue;
        }
        let assigned = bare.split_once(['=', ':']).filter(|(name, _)| is_secret(name));
        if std::mem::take(&mut secret_next) {
            out += MASK;
        } else if let Some((name, value)) = assigned {
            secret_next = value.is_empty();
            out += &bare[..=name.len()];
            out += if secret_next { "" } else { MASK };
        } else {
            // A flag, or the name of a member.
            secret_next = is_secret(bare) && (bare.starts_with("--") || rest == "\"");
            out += &without_password(bare);
        }
        out += rest;
    }
    out
}

/// What stands between words.
fn separates(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | '{' | '}')
}

/// Whether what has this name is for nobody's eyes.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_'], "");
    SECRETS.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (text, expected) in [
            ("open redis://:hush@host:6379/1 failed\n", "open redis://:****@host:6379/1 failed\n"),
            ("url=\"postgres://me:hush@h/d?sslmode=x\" a\n", "url=\"postgres://me:****@h/d?sslmode=x\" a\n"),
            ("--secret-key hush --bucket b\n", "--secret-key **** --bucket b\n"),
            ("--session-token=hush x\n", "--session-token=**** x\n"),
            ("META_PASSWORD=hush\n", "META_PASSWORD=****\n"),
            ("{\"SecretKey\": \"hush\",\"a\":1}", "{\"SecretKey\": \"****\",\"a\":1}"),
            ("{\"secret_key\":\"hush\"}", "{\"secret_key\":\"****\"}"),
            ("secret_key: hush", "secret_key: ****"),
            ("12:00:01 INFO mounted on /mnt/a@b\n", "12:00:01 INFO mounted on /mnt/a@b\n"),
            ("no secrets here: all is well\n", "no secrets here: all is well\n"),
        ] {
            assert_eq!(scrub(text), expected);
        }
    }

    #[test]
    fn settings_keep_their_members() {
        let text = r#"{"Format":{"Name":"v","SecretKey":"hush","EncryptKey":"","Tokens":["a"]},"Pid":7}"#;
        let shown: Value = serde_json::from_str(&settings(text)).unwrap();
        assert_eq!(shown["Format"]["SecretKey"], MASK);
        assert_eq!((&shown["Format"]["EncryptKey"], &shown["Format"]["Name"]), (&"".into(), &"v".into()));
        assert_eq!(pid(text), Some(7));
    }
}
