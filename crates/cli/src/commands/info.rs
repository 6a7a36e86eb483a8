//! `sluice info`: shows the inode, the sizes and the objects of a path.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use sluice_types::{CHUNK_SIZE, printable};

use crate::{
    control::{self, Control, Denied, Message},
    progress::Progress,
    sizes, table,
};

/// Show what stands behind a path
#[derive(Args)]
#[command(after_help = "Examples:\n  sluice info /mnt/vol/file\n  sluice info -r /mnt/vol/dir")]
pub(crate) struct Info {
    /// Paths, or inodes with -i
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The arguments are inodes of the mount in which the current directory is
    #[arg(short, long)]
    inode: bool,
    /// Sum directories up with all below them
    #[arg(short, long)]
    recursive: bool,
    /// Show slices instead of objects
    #[arg(long)]
    raw: bool,
    /// Count each file instead of believing the directories' own sums, as a mount of Sluice always
    /// does
    #[arg(long)]
    strict: bool,
}

/// The mount's answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    ino: u64,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    reason: String,
    summary: Sums,
    #[serde(default)]
    paths: Option<Vec<String>>,
    #[serde(default)]
    chunks: Option<Vec<Chunk>>,
    #[serde(default)]
    objects: Option<Vec<Object>>,
    #[serde(default, rename = "FLocks")]
    flocks: Option<Vec<Flock>>,
    #[serde(default, rename = "PLocks")]
    plocks: Option<Vec<Plock>>,
    #[serde(default)]
    denied: Denied,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sums {
    length: u64,
    size: u64,
    files: u64,
    dirs: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Chunk {
    #[serde(rename = "ChunkIndex")]
    index: u64,
    id: u64,
    size: u32,
    off: u32,
    len: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    chunk_index: u64,
    key: String,
    size: u32,
    off: u32,
    len: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Flock {
    sid: u64,
    owner: u64,
    #[serde(rename = "Type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Plock {
    sid: u64,
    owner: u64,
    #[serde(rename = "Type")]
    kind: u32,
    pid: u32,
    start: u64,
    end: u64,
}

impl Info {
    #[allow(clippy::unnecessary_wraps, reason = "all commands run alike")]
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut code = ExitCode::SUCCESS;
        for path in &self.paths {
            match self.ask(path).with_context(|| path.display().to_string()) {
                Ok(answer) => {
                    print(path, &answer);
                    if answer.denied.say(path) {
                        code = ExitCode::FAILURE;
                    }
                }
                Err(error) => {
                    errln!("sluice: {}", printable(format_args!("{error:#}")));
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    fn ask(&self, path: &Path) -> Result<Answer> {
        let (ino, place) = if self.inode {
            let ino = path.to_str().and_then(|text| text.parse().ok()).context("no inode number")?;
            (ino, env::current_dir()?)
        } else {
            let path = std::path::absolute(path)?;
            (control::inode(&path)?, path)
        };
        let message =
            Message::new(control::INFO).ino(ino).put(&[self.recursive, self.raw, self.strict].map(u8::from));
        let progress = Progress::new("count entries", None);
        let answer = Control::open(&place)?.ask(message, progress.piece());
        progress.finish();
        let answer: Answer =
            serde_json::from_slice(&answer?).context("the mount's answer is not understood")?;
        if answer.failed {
            bail!("{}", answer.reason);
        }
        Ok(answer)
    }
}

fn print(path: &Path, answer: &Answer) {
    outln!("{} :", printable(path.display()));
    outln!("  inode: {}", answer.ino);
    outln!("  files: {}", answer.summary.files);
    outln!("   dirs: {}", answer.summary.dirs);
    outln!(" length: {} ({} Bytes)", sizes::human(answer.summary.length), answer.summary.length);
    outln!("   size: {} ({} Bytes)", sizes::human(answer.summary.size), answer.summary.size);
    match answer.paths.as_deref().unwrap_or_default() {
        [] => outln!("   path: unknown"),
        [path] => outln!("   path: {}", printable(path)),
        paths => {
            outln!("  paths:");
            for path in paths {
                outln!("\t{}", printable(path));
            }
        }
    }
    print_data(answer);
    section("flocks", &["Sid", "Owner", "Type"], answer.flocks.as_deref(), &[], |lock| {
        vec![lock.sid.to_string(), lock.owner.to_string(), lock.kind.clone()]
    });
    section(
        "plocks",
        &["Sid", "Owner", "Type", "Pid", "Start", "End"],
        answer.plocks.as_deref(),
        &[],
        |lock| {
            let kind = if lock.kind == 0 { "R" } else { "W" };
            let numbers = [u64::from(lock.pid), lock.start, lock.end].map(|number| number.to_string());
            [vec![lock.sid.to_string(), lock.owner.to_string(), kind.into()], numbers.to_vec()].concat()
        },
    );
}

fn print_data(answer: &Answer) {
    let head = ["chunkIndex", "sliceId", "size", "offset", "length"];
    section("chunks", &head, answer.chunks.as_deref(), &[], |chunk| {
        let (size, off, len) = (u64::from(chunk.size), u64::from(chunk.off), u64::from(chunk.len));
        [chunk.index, chunk.id, size, off, len].map(|number| number.to_string()).to_vec()
    });
    let (mut chunk, mut pos) = (0, 0);
    let head = ["chunkIndex", "objectName", "size", "offset", "length", "pos"];
    section("objects", &head, answer.objects.as_deref(), &[1], |object| {
        if object.chunk_index != chunk {
            (chunk, pos) = (object.chunk_index, 0);
        }
        let at = chunk * CHUNK_SIZE + pos;
        pos += u64::from(object.len);
        let numbers = [object.size, object.off, object.len].map(|number| number.to_string());
        [vec![chunk.to_string(), object.key.clone()], numbers.to_vec(), vec![at.to_string()]].concat()
    });
}

/// A titled table, unless it is empty.
fn section<T>(
    title: &str,
    head: &[&str],
    items: Option<&[T]>,
    left: &[usize],
    row: impl FnMut(&T) -> Vec<String>,
) {
    let items = items.unwrap_or_default();
    if items.is_empty() {
        return;
    }
    outln!(" {title}:");
    let mut rows = vec![head.iter().map(|&name| name.to_owned()).collect()];
    rows.extend(items.iter().map(row));
    table::print(&rows, left);
}
