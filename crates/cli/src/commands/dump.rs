//! `sluice dump`: the metadata of a volume as a file.
//!
//! What must stay true: the file gets its name only when it is complete. A signal leaves nothing
//! behind.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use sluice_dump::{DumpOptions, LocalCopy, Packing, dump_binary, dump_json, is_faster_by_copy};
use sluice_meta::{Meta, Options, engine::Engine};
use sluice_types::Ino;

use crate::{engines, output, progress::Progress, signals, sizes, synced_file::SyncedFile, temporary, tree};

/// Write the metadata of a volume to a file
///
/// Example: `sluice dump redis://localhost/1 meta.json.gz`. The end of the name, .gz or .zst, says
/// how the file is compressed. File data are not in it.
#[derive(Args)]
pub(crate) struct Dump {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// The file; standard output if none
    file: Option<PathBuf>,
    /// Only what is below this directory, which becomes the root of the dump
    #[arg(long, value_name = "PATH", default_value = "/")]
    subdir: String,
    /// Leave the keys of the object store in the settings. The private key of an encrypted volume,
    /// which its passphrase protects, is in each dump, as with JuiceFS
    #[arg(long)]
    keep_secret_key: bool,
    /// Threads that read, at most 256, each over a connection of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = sizes::threads)]
    threads: usize,
    /// Leave out the trash
    #[arg(long)]
    skip_trash: bool,
    /// Write the binary form, which JuiceFS 1.3 and later reads; always the whole volume
    #[arg(long, conflicts_with_all = ["subdir", "skip_trash"])]
    binary: bool,
    /// No effect: a dump is always fast and takes little memory
    #[arg(long, hide = true)]
    fast: bool,
}

impl Dump {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.fast {
            tracing::warn!("--fast has no effect: a dump is always fast and takes little memory");
        }
        let engine = engines::open(&self.meta_url)?;
        let root = match self.subdir.as_str() {
            "/" => Ino::ROOT,
            path => {
                let options = Options { read_only: true, ..Options::default() };
                let meta = Meta::open(engine.clone(), options)?;
                let dir = tree::find(&meta, path)?;
                meta.close()?;
                dir.with_context(|| format!("there is no {path} in the volume"))?
            }
        };
        let options = DumpOptions {
            root,
            keep_secrets: self.keep_secret_key,
            skip_trash: self.skip_trash,
            threads: self.threads,
            throttled: false,
        };
        let copy = self.copy(&*engine, root)?;
        let progress = Progress::new(if self.binary { "dump records" } else { "dump entries" }, None);
        let write = |out: &mut dyn Write| -> Result<()> {
            let add = |count| progress.add(count);
            match copy {
                Some(copy) => copy.dump_json(out, &options, &add).map(drop)?,
                None if self.binary => dump_binary(&*engine, out, &options, &add).map(drop)?,
                None => dump_json(&*engine, out, &options, &add).map(drop)?,
            }
            Ok(())
        };
        match self.file.as_deref().filter(|file| *file != Path::new("-")) {
            Some(file) => to_file(file, write)?,
            None => write(&mut io::stdout().lock())?,
        }
        let (count, time) = progress.finish();
        let what = if self.binary { "records" } else { "entries" };
        if !output::is_quiet() {
            errln!("dumped {count} {what} in {:.2} s", time.as_secs_f64());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A copy to make the dump from, if that is faster.
    fn copy(&self, engine: &dyn Engine, root: Ino) -> Result<Option<LocalCopy>> {
        // The copy reads over three connections.
        if self.binary || root != Ino::ROOT || self.threads < 3 || !is_faster_by_copy(engine)? {
            return Ok(None);
        }
        let folder = temporary::folder();
        if !output::is_quiet() {
            errln!("copying the metadata to {}", folder.display());
        }
        let taken = LocalCopy::take(engine, &folder, self.keep_secret_key);
        if let Err(error) = &taken {
            tracing::warn!(
                "the metadata could not be copied to {}; the dump is made without a copy, which takes longer. If room \
                 is missing there, make room, or let TMPDIR name another folder: {error:#}",
                folder.display()
            );
        }
        Ok(taken.ok())
    }
}

/// Symbolic links that a name may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// The file that `file` leads to through symbolic links, as a shell would write it. It need not be
/// there.
fn target_of(file: &Path) -> Result<PathBuf> {
    let mut target = file.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            // What is relative begins at the directory of the link.
            Ok(to) => target = target.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(target),
        }
    }
    bail!("{} leads through too many symbolic links", file.display())
}

/// Has `write` fill a new file, which gets its name in the end, or a device or a pipe that is
/// there.
fn to_file(file: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if file.is_dir() {
        bail!("{} is a directory; name a file", file.display());
    }
    let name = file.file_name().context("the name of the file is missing")?.to_string_lossy();
    let is_special = fs::metadata(file).is_ok_and(|metadata| !metadata.is_file());
    if is_special {
        let opened = File::options().write(true).open(file);
        let filled = opened.map_err(Into::into).and_then(|out| fill(out, Packing::of(&name), write));
        return filled.map(drop).with_context(|| format!("cannot write {}", file.display()));
    }
    let target = target_of(file)?;
    let last = target.file_name().with_context(|| format!("{} is no file", target.display()))?;
    let part = target.with_file_name(format!(".{}.{}.part", last.to_string_lossy(), std::process::id()));
    signals::remove_when_ended(part.clone())?;
    let filled = create(&part)
        .and_then(|out| fill(SyncedFile::new(out)?, Packing::of(&name), write))
        .and_then(|out| Ok(out.finish()?))
        .and_then(|()| Ok(fs::rename(&part, &target)?));
    if filled.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&part);
    }
    filled.with_context(|| format!("cannot write {}", file.display()))
}

fn create(part: &Path) -> Result<File> {
    // It may hold keys.
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok(options.write(true).create(true).truncate(true).open(part)?)
}

/// Has `write` fill a file, and gives that back.
fn fill<W: Write>(file: W, packing: Packing, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<W> {
    let mut packer = packing.pack(BufWriter::with_capacity(1 << 20, file))?;
    write(&mut packer)?;
    Ok(packer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?)
}
