//! What may stand on the command line, apart from the arguments of each command, which stand with
//! the command.

use std::{ffi::OsString, io::IsTerminal, path::Path};

use clap::{Args, CommandFactory, Parser, ValueEnum};
use tracing_subscriber::EnvFilter;

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

/// How lines of the log are written.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

/// How much is said, and how.
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
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t)]
    log_format: LogFormat,
    /// No colours
    #[arg(long, global = true)]
    no_color: bool,
    // There is no profiling agent.
    #[arg(long, global = true, hide = true)]
    no_agent: bool,
}

impl Log {
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
        let _ = self.no_agent;
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // Whoever closed standard error does not want to hear of that.
            .log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => subscriber.with_ansi(colours).with_target(false).init(),
            LogFormat::Json => subscriber.json().flatten_event(true).init(),
        }
    }
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
            // What mount(8) passes on: not for us.
            Some("-s" | "-f" | "-n" | "-v") => {}
            _ => line.push(word),
        }
    }
    // mount(8) says nothing of what is its default, and devices and setuid programs are.
    if !rest.iter().any(|option| option == "remount") {
        rest.splice(0..0, ["suid".to_owned(), "dev".to_owned()]);
    }
    line.extend(["-o".into(), rest.join(",").into()]);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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
}
