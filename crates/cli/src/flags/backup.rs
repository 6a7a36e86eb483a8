//! Flags about backups of the metadata.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::UnusedFlags;
use crate::sizes;

/// Backups that a mount makes.
#[allow(clippy::struct_field_names, reason = "the names are those of the flags")]
#[derive(Args)]
#[command(next_help_heading = "Metadata")]
pub(crate) struct BackupFlags {
    /// Time between backups of the metadata in the object store, 5m or longer; 0 for none. Of all
    /// clients one makes it
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = interval)]
    pub(crate) backup_meta: Duration,
    /// Leave the trash out of backups
    #[arg(long)]
    pub(crate) backup_skip_trash: bool,
    /// Form of backups: what JuiceFS makes and counts, or the smaller form of `dump --binary`
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backup_format: BackupFormat,
}

impl BackupFlags {
    /// Notes what cannot be.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        if self.backup_skip_trash && self.backup_format == BackupFormat::Binary {
            unused.refuse(
                "--backup-skip-trash",
                true,
                "a binary backup is always of the whole volume; leave it out, or say --backup-format json",
            );
        }
    }
}

/// What a backup is written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackupFormat {
    #[default]
    Json,
    Binary,
}

impl BackupFormat {
    /// How the name of such a backup ends. JuiceFS takes only names of its own length for backups.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Json => ".json.gz",
            Self::Binary => ".bin.gz",
        }
    }

    /// The attribute of the root that says when the last one began.
    pub(crate) fn stamp(self) -> &'static str {
        match self {
            Self::Json => "lastBackup",
            Self::Binary => "lastBinaryBackup",
        }
    }
}

/// A backup reads the whole database.
fn interval(text: &str) -> Result<Duration, String> {
    let time = sizes::duration(text)?;
    if time.is_zero() || time >= Duration::from_mins(5) {
        Ok(time)
    } else {
        Err("it must be 5m or longer, or 0 for none".into())
    }
}
