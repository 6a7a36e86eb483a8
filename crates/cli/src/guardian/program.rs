//! A program that can serve a mount: which file, with which arguments, in which environment.
//!
//! What must stay true: each start runs the same build, even if the file at its path was replaced
//! meanwhile.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde::{Deserialize, Serialize};

use super::socket;
use crate::{arguments, background, huge_pages};

/// What to run.
#[derive(Debug)]
pub(super) struct Program {
    executable: OwnedFd,
    call: Call,
}

/// How it is called; bytes, since none of it need be text.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Call {
    arguments: Vec<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    folder: Vec<u8>,
}

impl Call {
    /// That of this process.
    pub(super) fn own() -> Self {
        let bytes = |text: OsString| text.into_vec();
        let folder = env::current_dir().unwrap_or_else(|_| "/".into());
        Self {
            arguments: arguments::real().into_iter().map(bytes).collect(),
            environment: env::vars_os().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            folder: bytes(folder.into()),
        }
    }
}

/// The file that this process runs.
pub(super) fn own_executable() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/self/exe")?.into())
}

impl Program {
    pub(super) fn new(executable: OwnedFd, call: Call) -> Self {
        Self { executable, call }
    }

    /// Starts it as a mount process that talks to its guardian through `channel`.
    pub(super) fn start(&self, channel: OwnedFd) -> io::Result<Child> {
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let arguments: Vec<OsString> = self.call.arguments.iter().map(text).collect();
        // Resolved by the new process, which has the descriptor until it runs the file.
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.executable.as_raw_fd()));
        let mut command = Command::new(path);
        command.env_clear();
        command.envs(self.call.environment.iter().map(|(name, value)| (text(name), text(value))));
        huge_pages::allow(&mut command);
        arguments::give(&mut command, &arguments);
        background::no_child(&mut command);
        let folder = Path::new(std::ffi::OsStr::from_bytes(&self.call.folder));
        // It may be gone by now; then nothing relative is found, which is told.
        command.current_dir(if folder.is_dir() { folder } else { Path::new("/") });
        socket::mark(&mut command);
        command.stdin(channel).stdout(Stdio::null()).spawn()
    }
}
