//! Makes commits survive a power cut.
//!
//! With `synchronous=NORMAL` a commit appends to the log (`-wal`) without waiting for the disk.
//! Syncing the log is enough, and what must stay true for that:
//! * Every commit that returned before is either in the log or has been copied to the database.
//!   SQLite syncs the log before it copies the log to the database, and syncs the database after
//!   that. Only then it may overwrite the log from its beginning. So a commit that is no longer in
//!   the log when we sync it is safe already, whoever copied it.
//! * Nobody can remove or replace the log while we use it: only the last connection that closes
//!   does that, and ours is open. SQLite syncs the directory entry of the log with its first
//!   header. [`sync_dir`] syncs that of the database, once.
//! * The other journal modes have no log. COMMIT itself waits for the disk, but not for the removal
//!   of the journal. A journal that is there again after a power cut would roll back the commit. So
//!   the journal, which may have been truncated, is synced, and the directory too. The code finds
//!   the journal mode from the files, because SQLite may have refused the requested mode, and other
//!   programs may change it.
//!
//! The *database file* must never be opened and closed here: closing any descriptor of it drops the
//! POSIX locks that SQLite holds on it for the whole process. The log has none.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use sluice_meta::engine::EngineError;

use super::options::Options;

/// Syncs what earlier commits wrote.
pub(super) fn sync(options: &Options) -> Result<(), EngineError> {
    // The answer must not be "try again": data that could not be synced may be gone at the second
    // try.
    sync_files(options).map_err(|error| {
        options.volume.refused(format!("cannot sync the database's log or journal: {error}"))
    })
}

fn sync_files(options: &Options) -> io::Result<()> {
    // Its files are beside the target of a symbolic link, not beside the link.
    let database = fs::canonicalize(&options.path)?;
    if !sync_beside(&database, "-wal")? {
        sync_beside(&database, "-journal")?;
        sync_dir_of(&database)?;
    }
    Ok(())
}

/// Syncs the file with that ending beside the database. Returns whether there is one.
fn sync_beside(database: &Path, ending: &str) -> io::Result<bool> {
    let mut path = database.to_owned().into_os_string();
    path.push(ending);
    match File::open(PathBuf::from(path)) {
        Ok(file) => file.sync_data().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the directory entry of a new database durable.
pub(super) fn sync_dir(options: &Options) -> Result<(), EngineError> {
    fs::canonicalize(&options.path)
        .and_then(|database| sync_dir_of(&database))
        .map_err(|error| options.volume.refused(format!("cannot sync the database's directory: {error}")))
}

fn sync_dir_of(database: &Path) -> io::Result<()> {
    File::open(database.parent().unwrap_or(database))?.sync_all()
}
