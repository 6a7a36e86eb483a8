//! Real programs that work while mount processes are replaced: `git`, and `fio` if it is installed.
//!
//! What must stay true: none of them sees an error.

use super::timeout::TIMEOUT;
use crate::rig::{command, until};
use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Files of the repository that is cloned.
const FILES: usize = 60;

/// Programs at work.
pub(super) struct Others {
    stop: Arc<AtomicBool>,
    clones: JoinHandle<anyhow::Result<usize>>,
    fio: Option<(Child, PathBuf)>,
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    command(Path::new("git"), arguments)
}

impl Others {
    /// Sets them to work below `point`; the repository is made at `repo` if it is not there.
    pub(super) fn start(point: &Path, repo: &Path) -> anyhow::Result<Self> {
        let repo_text = repo.to_string_lossy().into_owned();
        if !repo.exists() {
            fs::create_dir(repo)?;
            for number in 0..FILES {
                fs::write(repo.join(format!("file{number}")), format!("line {number}\n").repeat(200))?;
            }
            git(&["-C", &repo_text, "init", "-q"])?;
            git(&["-C", &repo_text, "add", "."])?;
            let who = ["-c", "user.name=e2e", "-c", "user.email=e2e@localhost"];
            git(&[&["-C", &repo_text], &who[..], &["commit", "-q", "-m", "all"]].concat())?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let clones = thread::spawn({
            let (stop, to) = (Arc::clone(&stop), point.join("clone").to_string_lossy().into_owned());
            move || {
                let mut count = 0;
                while !stop.load(Ordering::SeqCst) {
                    git(&["clone", "-q", "--no-hardlinks", &repo_text, &to])?;
                    git(&["-C", &to, "fsck", "--strict"])?;
                    let changed = git(&["-C", &to, "status", "--porcelain"])?;
                    ensure!(changed.is_empty(), "a fresh clone differs:\n{changed}");
                    fs::remove_dir_all(&to)?;
                    count += 1;
                }
                Ok(count)
            }
        });
        let fio = if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_ok() {
            Some(fio(point, &repo.with_extension("fio"))?)
        } else {
            println!("skipped: fio is not installed");
            None
        };
        Ok(Self { stop, clones, fio })
    }

    /// Ends them.
    ///
    /// # Errors
    /// What one of them saw.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        until("git to end", 3 * TIMEOUT, || self.clones.is_finished())?;
        let clones = self.clones.join().ok().context("a thread panicked")??;
        if let Some((process, log)) = &mut self.fio {
            let said = || fs::read_to_string(&*log).unwrap_or_default();
            ensure!(process.try_wait()?.is_none(), "fio ended early:\n{}", said());
            kill_process(Pid::from_child(process), Signal::INT)?;
            until("fio to end", TIMEOUT, || process.try_wait().is_ok_and(|status| status.is_some()))?;
            let said = said();
            ensure!(said.contains("err= 0") && !said.contains("error"), "fio:\n{said}");
        }
        println!("{clones} clones and fio saw no error");
        Ok(())
    }
}

/// Writes and reads at random places, and verifies what it reads.
fn fio(point: &Path, log: &Path) -> anyhow::Result<(Child, PathBuf)> {
    let folder = point.join("fio");
    fs::create_dir_all(&folder)?;
    let file = File::create(log)?;
    let process = Command::new("fio")
        .arg(format!("--directory={}", folder.display()))
        .args([
            "--name=e2e",
            "--rw=randrw",
            "--bsrange=4k-64k",
            "--size=16M",
            "--fsync=16",
            "--ioengine=psync",
        ])
        .args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--time_based",
            "--runtime=3600",
        ])
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    Ok((process, log.to_owned()))
}
