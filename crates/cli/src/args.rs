//! Global command-line arguments. The module of each command has its own arguments.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::Path,
};

use clap::{Args, CommandFactory, Parser, ValueEnum};
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::filter_fn, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::commands::Command;

/// A POSIX file system on an object store and the database you already run.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: Log,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The format of log lines.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    #[default]
    Text,
    /// A JSON object a line, with the command, the volume, the session and the background job
    Json,
}

/// Level and format of the log.
#[derive(Args)]
pub(crate) struct Log {
    /// Say more
    #[arg(short, long, visible_alias = "debug", global = true)]
    verbose: bool,
    /// Say everything
    #[arg(long, global = true)]
    trace: bool,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Level by name: trace, debug, info, warn or error
    #[arg(long = "log-level", global = true, hide = true, value_name = "LEVEL")]
    level: Option<String>,
    /// How lines of the log are written
    #[arg(
        id = "log_format",
        long = "log-format",
        global = true,
        value_enum,
        value_name = "FORM",
        default_value_t
    )]
    format: LogFormat,
    /// No colours
    #[arg(long, global = true)]
    no_color: bool,
    /// Begin each line of the log with this id; `random` makes one
    #[arg(long = "log-id", global = true, value_name = "ID")]
    id: Option<String>,
    // There is no profiling agent.
    #[arg(long, global = true, hide = true)]
    no_agent: bool,
    #[arg(long, global = true, hide = true, value_name = "ADDRESS", value_parser = no_profiles)]
    pyroscope: Option<String>,
}

impl Log {
    /// Whether to say only what went wrong.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Starts logging to standard error. `RUST_LOG` overrides the flags.
    pub(crate) fn init(&self) {
        let level = match self {
            Self { level: Some(level), .. } => level,
            Self { trace: true, .. } => "trace",
            Self { verbose: true, .. } => "debug",
            Self { quiet: true, .. } => "warn",
            _ => "info",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        let colours = std::io::stderr().is_terminal() && !self.no_color;
        let _ = (self.no_agent, &self.pyroscope);
        let id = self.id.as_ref().map(|id| match id.as_str() {
            "random" => crate::volume::new_uuid(),
            id => id.to_owned(),
        });
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || Lines(id.clone()))
            // If standard error is closed, nobody reports that.
            .log_internal_errors(false);
        let subscriber = tracing_subscriber::registry().with(filter);
        match self.format {
            // People know which command they ran, and which log they read.
            LogFormat::Text => {
                let lines = lines.with_ansi(colours).with_target(false);
                subscriber.with(lines.with_filter(filter_fn(is_event))).init();
            }
            LogFormat::Json => subscriber.with(lines.json().flatten_event(true)).init(),
        }
    }
}

/// Writes log lines to standard error, each after the id if there is one.
struct Lines(Option<String>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(id) = &self.0 else { return io::stderr().write(line) };
        io::stderr().write_all(&[b"[", id.as_bytes(), b"] ", line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn no_profiles(_: &str) -> Result<String, String> {
    Err("profiles are sent nowhere; look at the process with perf".into())
}

/// The arguments as they are, or, for a program called `mount.sluice` or `mount.juicefs` as
/// mount(8) calls it, those of the mount in the background that it asks for: options that are flags
/// of ours become flags, others stay.
pub(crate) fn as_mount_helper(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    if !matches!(name, Some("mount.sluice" | "mount.juicefs" | "mount.fuse.sluice")) {
        return arguments;
    }
    let cli = Cli::command();
    let flags: Vec<&str> = cli
        .find_subcommand("mount")
        .map(|mount| mount.get_arguments().filter_map(clap::Arg::get_long).collect())
        .unwrap_or_default();
    let mut line: Vec<OsString> = vec!["sluice".into(), "mount".into(), "-d".into(), "--silent".into()];
    let mut rest = Vec::new();
    let mut words = arguments.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => {
                let options = words.next().unwrap_or_default();
                for option in options.to_string_lossy().split(',') {
                    let known = option.split('=').next().is_some_and(|name| flags.contains(&name));
                    if known && option != "background" {
                        line.push(format!("--{option}").into());
                    } else if option != "background" && !option.is_empty() {
                        rest.push(option.to_owned());
                    }
                }
            }
            // mount(8) passes these on. They have no effect here.
            Some("-s" | "-f" | "-n" | "-v") => {}
            _ => line.push(word),
        }
    }
    // mount(8) does not pass its defaults, and `dev` and `suid` are defaults.
    if !rest.iter().any(|option| option == "remount") {
        rest.splice(0..0, ["suid".to_owned(), "dev".to_owned()]);
    }
    line.extend(["-o".into(), rest.join(",").into()]);
    line
}

/// Whether this is an event. Log lines are written for events; spans only add fields.
fn is_event(what: &Metadata<'_>) -> bool {
    what.is_event()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of JuiceFS 1.4.1.
    const JUICEFS_FLAGS: [(&str, &str); 12] = [
        (
            "mount",
            "background no-syslog log force hide-internal update-fstab disable-transparent-hugepage enable-xattr \
             enable-cap enable-selinux enable-ioctl root-squash all-squash prefix-internal max-fuse-io umask subdir \
             backup-meta backup-skip-trash heartbeat read-only no-bgjob atime-mode skip-dir-nlink skip-dir-mtime \
             sort-dir fast-statfs network-interfaces attr-cache entry-cache dir-entry-cache negative-entry-cache \
             readdir-cache open-cache open-cache-limit storage bucket storage-class tag get-timeout put-timeout \
             io-retries max-uploads max-downloads max-stage-write max-deletes upload-limit download-limit \
             check-storage buffer-size max-readahead prefetch writeback writeback-threshold-size upload-delay \
             upload-hours cache-dir cache-mode cache-size cache-items free-space-ratio cache-partial-only \
             cache-large-write verify-cache-checksum cache-eviction cache-scan-interval cache-expire metrics \
             custom-labels consul no-usage-report",
        ),
        (
            "format",
            "force no-update storage bucket access-key secret-key session-token storage-class tag block-size \
             compress encrypt-rsa-key encrypt-algo hash-prefix shards capacity inodes trash-days enable-acl \
             ranger-rest-url ranger-service kerberos-config-file",
        ),
        (
            "config",
            "yes force storage bucket access-key secret-key session-token storage-class tag upload-limit \
             download-limit capacity inodes trash-days enable-acl ranger-rest-url ranger-service \
             kerberos-config-file encrypt-secret min-client-version max-client-version dir-stats user-group-quota \
             changelog changelog-max-age changelog-max-lines tier",
        ),
        ("changelog", "from"),
        ("umount", "force flush"),
        ("info", "inode recursive strict raw"),
        ("summary", "depth entries strict csv"),
        ("rmr", "skip-trash threads"),
        ("clone", "preserve threads"),
        ("warmup", "file threads background evict check"),
        (
            "objbench",
            "storage access-key secret-key session-token shards block-size big-object-size small-object-size \
             small-objects skip-functional-tests threads storage-class",
        ),
        ("fsck", "path repair recursive sync-dir-stat repair-dir-mode"),
    ];

    /// Defaults of `mount` of JuiceFS 1.4.1 that are the same here; docs/compatibility.md has the
    /// others.
    const JUICEFS_DEFAULTS: [(&str, &str); 24] = [
        ("backup-meta", "1h"),
        ("heartbeat", "12s"),
        ("attr-cache", "1s"),
        ("entry-cache", "1s"),
        ("dir-entry-cache", "1s"),
        ("negative-entry-cache", "0s"),
        ("open-cache", "0s"),
        ("get-timeout", "60s"),
        ("put-timeout", "60s"),
        ("max-uploads", "20"),
        ("max-downloads", "200"),
        ("max-deletes", "10"),
        ("max-stage-write", "1000"),
        ("buffer-size", "300M"),
        ("prefetch", "1"),
        ("writeback-threshold-size", "0"),
        ("upload-delay", "0s"),
        ("cache-mode", "0600"),
        ("cache-size", "100G"),
        ("free-space-ratio", "0.1"),
        ("verify-cache-checksum", "extend"),
        ("cache-eviction", "2-random"),
        ("cache-scan-interval", "1h"),
        ("cache-expire", "0s"),
    ];

    fn all(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        let mut found = 0;
        let mut rest = vec![Cli::command()];
        while let Some(command) = rest.pop() {
            let name = command.get_name().to_owned();
            rest.extend(command.get_subcommands().cloned());
            if command.has_subcommands() {
                continue;
            }
            found += 1;
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{name} has no example: {help}");
            assert!(help.contains("sluice "), "{name}: the example calls the program");
        }
        assert!(found > 15, "{found} commands");
    }

    #[test]
    fn lines_of_fstab_become_flags_and_options() {
        let line =
            ["/sbin/mount.sluice", "redis://h/1", "/mnt", "-n", "-o", "rw,_netdev,cache-size=1G,read-only"];
        let expected = [
            "sluice",
            "mount",
            "-d",
            "--silent",
            "redis://h/1",
            "/mnt",
            "--cache-size=1G",
            "--read-only",
            "-o",
            "suid,dev,rw,_netdev",
        ];
        assert_eq!(as_mount_helper(all(&line)), all(&expected));
        let plain = all(&["sluice", "mount", "-o", "ro"]);
        assert_eq!(as_mount_helper(plain.clone()), plain);
    }

    #[test]
    fn every_flag_of_juicefs_is_known() {
        let command = Cli::command();
        for (name, flags) in JUICEFS_FLAGS {
            let known = command.find_subcommand(name).expect("there");
            for flag in flags.split(' ') {
                let found = known.get_arguments().any(|argument| argument.get_long() == Some(flag));
                assert!(found, "{name} --{flag}");
            }
        }
    }

    #[test]
    fn defaults_are_those_of_juicefs() {
        let command = Cli::command();
        let mount = command.find_subcommand("mount").expect("there");
        for (flag, value) in JUICEFS_DEFAULTS {
            let argument = mount.get_arguments().find(|argument| argument.get_long() == Some(flag));
            let defaults = argument.expect(flag).get_default_values();
            assert_eq!(defaults, [value], "--{flag}");
        }
    }
}
