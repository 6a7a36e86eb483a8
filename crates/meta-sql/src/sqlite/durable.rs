//! Makes commits survive a power cut.
//!
//! With `synchronous=NORMAL` a commit appends to the log (`-wal`) without waiting for the disk.
//! Syncing the log is enough, and what must stay true for that:
//! * Every commit that returned before is either in the log or has been copied to the database.
//!   SQLite syncs the log before it copies, and the database after; only then may the log be
//!   written from its beginning again. So a commit that is no longer in the log when we sync it is
//!   safe already, whoever copied it.
//! * The log cannot be removed or exchanged under us: the last connection that closes does that,
//!   and ours is open. Its directory entry is synced by SQLite with the log's first header, the
//!   database's own by [`sync_dir`] once.
//! * In the other journal modes, in which there is no log, COMMIT itself waits for the disk, but
//!   not for the end of the journal: a journal that comes back would undo the commit. So it is
//!   synced, cut off as it may be, and the directory. Which mode it is shows in the files alone:
//!   SQLite may have refused the wanted one, and others may change it.
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
    // Nobody may take "try again" for an answer here: data that could not be synced may be gone at
    // the second try.
    sync_files(options)
        .map_err(|error| options.refused(format!("cannot sync the database's log or journal: {error}")))
}

fn sync_files(options: &Options) -> io::Result<()> {
    // Its files are where a symbolic link leads, not beside the link.
    let database = fs::canonicalize(&options.path)?;
    if !sync_beside(&database, "-wal")? {
        sync_beside(&database, "-journal")?;
        sync_dir_of(&database)?;
    }
    Ok(())
}

/// Syncs the file of that ending beside the database; whether there is one.
fn sync_beside(database: &Path, ending: &str) -> io::Result<bool> {
    let mut path = database.to_owned().into_os_string();
    path.push(ending);
    match File::open(PathBuf::from(path)) {
        Ok(file) => file.sync_data().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the directory entry of a new database survive.
pub(super) fn sync_dir(options: &Options) -> Result<(), EngineError> {
    fs::canonicalize(&options.path)
        .and_then(|database| sync_dir_of(&database))
        .map_err(|error| options.refused(format!("cannot sync the database's directory: {error}")))
}

fn sync_dir_of(database: &Path) -> io::Result<()> {
    File::open(database.parent().unwrap_or(database))?.sync_all()
}
