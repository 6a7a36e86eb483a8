//! `--update-fstab`: the line of `/etc/fstab` that mounts a volume as this command does.
//!
//! What must stay true: the file is replaced atomically, and all other lines stay unchanged.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, ArgMatches, Command, parser::ValueSource};

/// The file.
pub(crate) const FSTAB: &str = "/etc/fstab";
/// The program that mount(8) runs for our type.
pub(crate) const HELPER: &str = "/sbin/mount.sluice";
/// What a mount from this file does in any case, or what is only of this call.
const NOT_KEPT: [&str; 6] = ["background", "foreground", "update_fstab", "force", "silent", "options"];

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The metadata URL.
    pub(crate) url: String,
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// With commas between them.
    pub(crate) options: String,
}

impl Line {
    /// The line for what `arguments` mount; `command` is the program's, with `mount` in it.
    pub(crate) fn new(
        command: Command,
        arguments: Vec<OsString>,
        url: String,
        mountpoint: PathBuf,
    ) -> Result<Self> {
        let known = command.find_subcommand("mount").context("there is no mount command")?.clone();
        let matches = command.try_get_matches_from(arguments)?;
        let given = matches.subcommand_matches("mount").context("this is no mount")?;
        let mut options = vec!["_netdev".to_owned(), "nofail".to_owned()];
        options.extend(given.get_many::<String>("options").into_iter().flatten().cloned());
        for argument in known.get_arguments() {
            let (id, Some(name)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
            let said = given.value_source(id) == Some(ValueSource::CommandLine);
            if !said || NOT_KEPT.contains(&id) {
                continue;
            }
            options.push(match argument.get_action() {
                ArgAction::SetTrue => name.to_owned(),
                _ => format!("{name}={}", value(given, id, name)?),
            });
        }
        options[2..].sort_unstable();
        Ok(Self { url, mountpoint, options: options.join(",") })
    }

    fn text(&self) -> String {
        let place = self.mountpoint.display().to_string();
        format!("{}  {}  sluice  {}  0 0", escaped(&self.url), escaped(&place), escaped(&self.options))
    }

    /// Whether a line of the file mounts the same volume at the same place.
    fn is_of(&self, line: &str) -> bool {
        let fields: Vec<_> = line.split_whitespace().collect();
        let place = escaped(&self.mountpoint.display().to_string());
        fields.len() >= 4
            && fields[0] == escaped(&self.url)
            && fields[1] == place
            && matches!(fields[2], "sluice" | "juicefs")
    }

    /// Writes the line to the `fstab` at this path, in place of the one for the same volume and
    /// place. Answers whether anything changed.
    pub(crate) fn write(&self, fstab: &Path) -> Result<bool> {
        let old = match fs::read_to_string(fstab) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => bail!("cannot read {}: {error}", fstab.display()),
        };
        let mut lines: Vec<_> = old.lines().filter(|line| !self.is_of(line)).map(str::to_owned).collect();
        lines.push(self.text());
        let new = lines.join("\n") + "\n";
        if old.lines().any(|line| line == self.text()) {
            return Ok(false);
        }
        replace(fstab, &new).with_context(|| format!("cannot write {}", fstab.display()))?;
        Ok(true)
    }
}

/// Has mount(8) find this program under the name of our type.
pub(crate) fn install_helper(helper: &Path) -> Result<()> {
    if fs::symlink_metadata(helper).is_ok() {
        return Ok(());
    }
    let program = std::env::current_exe().context("where this program lies is not known")?;
    std::os::unix::fs::symlink(program, helper)
        .with_context(|| format!("cannot make {}, which mount(8) runs", helper.display()))
}

/// A value as it was given, with paths that mean the same from everywhere.
fn value(given: &ArgMatches, id: &str, name: &str) -> Result<String> {
    let raw = given.get_raw(id).into_iter().flatten().next_back().unwrap_or_default();
    let text = raw.to_string_lossy().into_owned();
    let absolute = |path: &str| {
        std::path::absolute(path).map(|path| path.display().to_string()).map_err(anyhow::Error::from)
    };
    let text = match name {
        "cache-dir" if text != "memory" => {
            let parts = text.split(':').filter(|part| !part.is_empty()).map(absolute);
            parts.collect::<Result<Vec<_>>>()?.join(":")
        }
        "log" => absolute(&text)?,
        _ => text,
    };
    ensure!(!text.contains(','), "--{name} {text} cannot stand in {FSTAB}: a comma ends an option there");
    Ok(text)
}

/// As fstab(5) has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(0o644, |found| found.permissions().mode() & 0o7777);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sluice");
    let beside = PathBuf::from(beside);
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::{Cli, as_mount_helper};

    fn line(arguments: &[&str]) -> Result<Line> {
        let arguments = ["sluice", "mount", "redis://h/1", "/mnt/a b"].iter().chain(arguments);
        let arguments = arguments.map(OsString::from).collect();
        Line::new(Cli::command(), arguments, "redis://h/1".into(), "/mnt/a b".into())
    }

    #[test]
    fn what_was_said_is_in_the_line_and_means_the_same_again() {
        let flags =
            ["-d", "--update-fstab", "--writeback", "--cache-dir=c", "--entry-cache", "2", "-o", "ro"];
        let line = line(&flags).expect("a line");
        let cache = std::path::absolute("c").expect("a folder").display().to_string();
        assert_eq!(line.options, format!("_netdev,nofail,cache-dir={cache},entry-cache=2,ro,writeback"));
        let expected = format!(
            "redis://h/1  /mnt/a\\040b  sluice  _netdev,nofail,cache-dir={cache},entry-cache=2,ro,writeback  0 0"
        );
        assert_eq!(line.text(), expected);
        let called = ["/sbin/mount.sluice", &line.url, "/mnt/a b", "-o", &line.options];
        let again = as_mount_helper(called.iter().map(OsString::from).collect());
        for flag in [&format!("--cache-dir={cache}"), "--entry-cache=2", "--writeback"] {
            assert!(again.contains(&OsString::from(flag)), "{again:?}");
        }
        let matches = Cli::command().try_get_matches_from(again).expect("it is understood");
        assert!(matches.subcommand_matches("mount").is_some());
    }

    #[test]
    fn a_comma_cannot_stand_in_a_line() {
        let error = line(&["--cache-dir", "/a,b"]).expect_err("a comma");
        assert!(format!("{error:#}").contains("--cache-dir /a,b cannot stand"), "{error:#}");
    }

    #[test]
    fn only_the_line_of_the_same_mount_is_replaced() {
        let place = tempfile::tempdir().expect("a folder");
        let fstab = place.path().join("fstab");
        let others = "# a comment\n/dev/sda1 / ext4 defaults 0 1\nredis://h/1 /other juicefs _netdev 0 0\n";
        fs::write(&fstab, format!("{others}redis://h/1  /mnt/a\\040b  juicefs  _netdev  0 0"))
            .expect("written");
        fs::set_permissions(&fstab, fs::Permissions::from_mode(0o640)).expect("set");
        let one = line(&["--read-only"]).expect("a line");
        assert!(one.write(&fstab).expect("written"));
        assert_eq!(fs::read_to_string(&fstab).expect("read"), format!("{others}{}\n", one.text()));
        assert!(!one.write(&fstab).expect("nothing to do"));
        let other = line(&[]).expect("a line");
        assert!(other.write(&fstab).expect("written"));
        assert_eq!(fs::read_to_string(&fstab).expect("read"), format!("{others}{}\n", other.text()));
        let mode = fs::metadata(&fstab).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(place.path()).expect("read").count(), 1, "nothing is left beside it");
    }
}
