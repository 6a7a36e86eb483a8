//! Close-to-open: after one mount closes a file, the next open on another mount sees its whole
//! content.
//!
//! Names are left alone while files change: a kernel may cache a name for as long as the options of
//! the mount allow. Close-to-open does not forbid this. New names, never looked up before, must be
//! seen at once.

use crate::{compare::Reserve, pattern};
use anyhow::{Context, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, flock};
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

const FILES: usize = 8;

/// Whose mounts a volume is shared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Sluice's alone.
    Ours,
    /// Also JuiceFS', which appends where its kernel believes the end to be: nothing is appended,
    /// and each change is looked at before the next.
    Both,
}

/// Runs `operations` rounds of random changes through `mounts`, checked through another of them.
///
/// # Errors
/// The first file that is not as the last one to close it left it, with the seed.
pub fn run(mounts: &[PathBuf], among: Among, seed: u64, operations: usize) -> anyhow::Result<()> {
    ensure!(mounts.len() > 1, "close-to-open needs two mounts of one volume");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = format!("close-to-open-{seed:x}");
    let places: Vec<PathBuf> = mounts.iter().map(|mount| mount.join(&folder)).collect();
    std::fs::create_dir(&places[0]).with_context(|| format!("cannot make {}", places[0].display()))?;
    let mut model: Vec<(String, Vec<u8>)> = (0..FILES).map(|file| (format!("f{file}"), Vec::new())).collect();
    for (name, _) in &model {
        std::fs::write(places[0].join(name), b"")?;
    }
    for round in 0..operations {
        let writer = rng.random_range(0..places.len());
        let reader = (writer + rng.random_range(1..places.len())) % places.len();
        let file = if rng.random_bool(0.05) {
            let file = rng.random_range(0..FILES);
            model[file] = (format!("r{round}"), Vec::new());
            file
        } else {
            rng.random_range(0..FILES)
        };
        let (name, content) = &mut model[file];
        // Who did not look since another wrote has to find out as it opens.
        let looks = among == Among::Both || rng.random_bool(0.5);
        change(&places[writer].join(&*name), content, among, &mut rng, round as u64 | seed << 32)
            .and_then(|()| if looks { check(&places[reader].join(&*name), content) } else { Ok(()) })
            .map_err(|fault| {
                let again = places.iter().map(|place| check(&place.join(&*name), content));
                let again: Vec<String> = again.map(|seen| format!("{seen:?}")).collect();
                fault.context(format!("looked again, through each: {again:#?}"))
            })
            .with_context(|| {
                format!(
                    "round {round} of seed {seed}: {name}, written through {writer}, read through {reader}"
                )
            })?;
    }
    match among {
        Among::Ours => {
            appends_under_locks(&places, operations / 10).with_context(|| format!("seed {seed}"))?;
        }
        Among::Both => {
            // JuiceFS on Redis forgets the first chunk of a file that is empty when it is removed.
            for file in std::fs::read_dir(&places[0])? {
                File::options().append(true).open(file?.path())?.set_len(1)?;
            }
        }
    }
    std::fs::remove_dir_all(&places[0]).context("cannot remove what was made")
}

/// Appends through descriptors that stay open in each mount, under a lock of the file, and reads
/// what the others appended: nothing is overwritten, nothing looks old.
fn appends_under_locks(places: &[PathBuf], rounds: usize) -> anyhow::Result<()> {
    let open = |place: &PathBuf| File::options().create(true).append(true).read(true).open(place.join("log"));
    let files = places.iter().map(open).collect::<std::io::Result<Vec<_>>>()?;
    let mut wanted = String::new();
    for round in 0..rounds {
        let mut file = &files[round % files.len()];
        // A third of the turns wait for nobody, so that the request that does not wait is used,
        // too.
        let wait = if round % 3 == 0 {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::LockExclusive
        };
        flock(file, wait).context("lock")?;
        let mut seen = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut seen)?;
        ensure!(
            seen == wanted,
            "append {round}: under the lock there are {} of {} bytes, or others",
            seen.len(),
            wanted.len()
        );
        let line = format!("{round} by {}\n", round % files.len());
        file.write_all(line.as_bytes())?;
        wanted.push_str(&line);
        flock(file, FlockOperation::Unlock).context("unlock")?;
    }
    drop(files);
    let left = std::fs::read_to_string(places[0].join("log"))?;
    ensure!(
        left == wanted,
        "{} of {} bytes are left of what was appended, or others",
        left.len(),
        wanted.len()
    );
    Ok(())
}

/// Opens, changes a few times, closes.
fn change(
    path: &Path,
    content: &mut Vec<u8>,
    among: Among,
    rng: &mut StdRng,
    number: u64,
) -> anyhow::Result<()> {
    let truncate = rng.random_bool(0.1);
    let append = among == Among::Ours && rng.random_bool(0.3);
    let mut flags = OFlags::RDWR | OFlags::CREATE;
    flags.set(OFlags::TRUNC, truncate);
    flags.set(OFlags::APPEND, append);
    let file = rustix::fs::open(path, flags, Mode::from(0o644)).context("open")?;
    if truncate {
        content.clear();
    }
    for step in 0..rng.random_range(1..4) {
        // Appending leaves it to the kernel to know the end.
        let offset =
            if append || rng.random_bool(0.3) { content.len() } else { rng.random_range(0..100_000) };
        let length =
            if rng.random_bool(0.02) { rng.random_range(1..5_000_000) } else { rng.random_range(1..40_000) };
        match rng.random_range(0..10) {
            0..7 => {
                let bytes = pattern::bytes(number * 4 + step, length);
                rustix::io::retry_on_intr(|| rustix::io::pwrite(&file, &bytes, offset as u64))
                    .context("write")
                    .and_then(|count| {
                        ensure!(count == bytes.len(), "wrote {count} of {}", bytes.len());
                        Ok(())
                    })?;
                if content.len() < offset + length {
                    content.resize(offset + length, 0);
                }
                content[offset..offset + length].copy_from_slice(&bytes);
            }
            7..9 => {
                rustix::fs::ftruncate(&file, offset as u64).context("truncate")?;
                content.resize(offset, 0);
            }
            _ => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, offset as u64, length as u64)
                    .with_context(|| format!("{:?}", Reserve::Punch))?;
                let size = content.len();
                content[offset.min(size)..(offset + length).min(size)].fill(0);
            }
        }
    }
    if rng.random_bool(0.2) {
        rustix::fs::fsync(&file).context("fsync")?;
    }
    // An error of the last flush is told here; dropping would swallow it.
    drop(file);
    Ok(())
}

fn check(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let seen = std::fs::read(path).context("read")?;
    let size = std::fs::metadata(path).context("stat")?.len();
    if size != content.len() as u64 {
        bail!("stat says {size} bytes, {} were written", content.len());
    }
    if seen != content {
        let differs = |(seen, written): (&u8, &u8)| seen != written;
        let first = seen.iter().zip(content).position(differs).unwrap_or(seen.len().min(content.len()));
        let last = seen.iter().zip(content).rposition(differs).unwrap_or(first);
        let nothing = seen.get(first..=last).is_some_and(|seen| seen.iter().all(|byte| *byte == 0));
        bail!(
            "{} bytes read, {} written, different from byte {first} to {last}{}",
            seen.len(),
            content.len(),
            if nothing { ", where zeros are read" } else { "" }
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_twice_is_close_to_open() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        run(&[folder.path().to_owned(), folder.path().to_owned()], Among::Ours, 1, 200)
    }

    #[test]
    fn two_directories_are_not() -> anyhow::Result<()> {
        let (a, b) = (tempfile::tempdir()?, tempfile::tempdir()?);
        assert!(run(&[a.path().to_owned(), b.path().to_owned()], Among::Ours, 1, 200).is_err());
        Ok(())
    }
}
