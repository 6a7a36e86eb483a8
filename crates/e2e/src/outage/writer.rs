//! One writer: random calls on names of its own in directories that all share, so that it knows
//! every answer.
//!
//! What must stay true: each call has exactly one correct result. A name that only this writer
//! creates never exists before. The appended data is at the end of the file exactly once. A link
//! counts once.

use crate::pattern;
use anyhow::{Context, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IteratorRandom};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

const DIRS: usize = 3;
const NAMES: usize = 8;
/// Longest piece that is written at once, bytes.
const PIECE: usize = 60_000;

/// A name: in which of the shared directories, and which of the writer's names there.
type Place = (usize, String);

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    /// By the number of the step that made it.
    File(u64),
}

/// What must be there of one writer.
#[derive(Default)]
pub(super) struct Model {
    names: BTreeMap<Place, Node>,
    contents: BTreeMap<u64, Vec<u8>>,
}

/// A writer at work.
pub(super) struct Writer {
    root: PathBuf,
    number: usize,
    seed: u64,
    rng: StdRng,
    /// What it knows.
    pub(super) model: Model,
}

fn dir(root: &Path, number: usize) -> PathBuf {
    root.join(format!("d{number}"))
}

impl Model {
    fn links(&self, file: u64) -> u64 {
        self.names.values().filter(|named| **named == Node::File(file)).count() as u64
    }

    /// Sets a name.
    fn put(&mut self, place: Place, node: Node) {
        let before = self.names.insert(place, node);
        self.forget(before);
    }

    /// Takes a name away.
    fn remove(&mut self, place: &Place) {
        let before = self.names.remove(place);
        self.forget(before);
    }

    /// A file that has lost its last name is gone.
    fn forget(&mut self, before: Option<Node>) {
        if let Some(Node::File(file)) = before
            && self.links(file) == 0
        {
            self.contents.remove(&file);
        }
    }

    /// Files with their names.
    fn files(&self) -> impl Iterator<Item = (Place, u64)> {
        self.names.iter().filter_map(|(place, node)| match node {
            Node::File(file) => Some((place.clone(), *file)),
            Node::Dir => None,
        })
    }

    /// All that the writers know is in the mount at `root`, and nothing else.
    pub(super) fn verify(models: &[Self], root: &Path) -> anyhow::Result<()> {
        for number in 0..DIRS {
            let wanted = models.iter().flat_map(|model| model.names.keys());
            let wanted: BTreeSet<_> =
                wanted.filter(|(dir, _)| *dir == number).map(|(_, name)| name.clone()).collect();
            let entries = fs::read_dir(dir(root, number))?.collect::<Result<Vec<_>, _>>()?;
            let seen: BTreeSet<_> =
                entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            ensure!(seen.len() == entries.len(), "names stand twice in directory {number}");
            let differ: Vec<_> = seen.symmetric_difference(&wanted).collect();
            ensure!(differ.is_empty(), "directory {number}: missing or too much is {differ:?}");
        }
        for model in models {
            for ((number, name), node) in &model.names {
                let path = dir(root, *number).join(name);
                match node {
                    Node::File(file) => model.verify_file(&path, *file)?,
                    Node::Dir => ensure!(fs::read_dir(&path)?.next().is_none(), "{name} is not empty"),
                }
            }
        }
        Ok(())
    }

    fn verify_file(&self, path: &Path, file: u64) -> anyhow::Result<()> {
        let wanted = self.contents.get(&file).map_or(&[][..], Vec::as_slice);
        let seen = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        ensure!(
            seen == wanted,
            "{} has {} bytes of {:x}, should have {} of {:x}; alike up to byte {}",
            path.display(),
            seen.len(),
            pattern::fingerprint(&seen),
            wanted.len(),
            pattern::fingerprint(wanted),
            seen.iter().zip(wanted).take_while(|(a, b)| a == b).count()
        );
        let (links, wanted) = (fs::metadata(path)?.nlink(), self.links(file));
        ensure!(links == wanted, "{} has {links} links, should have {wanted}", path.display());
        Ok(())
    }
}

impl Writer {
    /// Makes the directories that all writers share.
    pub(super) fn prepare(root: &Path) -> anyhow::Result<()> {
        for number in 0..DIRS {
            fs::create_dir(dir(root, number))?;
        }
        Ok(())
    }

    /// A writer who has done nothing yet.
    pub(super) fn new(root: &Path, number: usize, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed.rotate_left(16) ^ number as u64);
        Self { root: root.to_owned(), number, seed, rng, model: Model::default() }
    }

    fn path(&self, place: &Place) -> PathBuf {
        dir(&self.root, place.0).join(&place.1)
    }

    fn place(&mut self) -> Place {
        let name = format!("w{}n{}", self.number, self.rng.random_range(0..NAMES));
        (self.rng.random_range(0..DIRS), name)
    }

    /// Bytes that no other step writes.
    fn bytes(&mut self, step: u64) -> Vec<u8> {
        let length = self.rng.random_range(1..PIECE);
        pattern::bytes(self.seed ^ (self.number as u64) << 48 ^ step << 8, length)
    }

    /// One random change, durable once it answers, or a read of what is there.
    pub(super) fn step(&mut self, step: u64) -> anyhow::Result<()> {
        let place = self.place();
        let path = self.path(&place);
        let report = |what: &str| format!("{what} {}", path.display());
        match self.model.names.get(&place).copied() {
            None => match self.rng.random_range(0..8) {
                0 => self.make_dir(place, &path).with_context(|| report("mkdir")),
                1 | 2 => self.link(place, &path).with_context(|| report("link to")),
                3 => self.rename(place, &path).with_context(|| report("rename to")),
                _ => self.create(place, &path, step).with_context(|| report("create")),
            },
            Some(Node::Dir) => {
                fs::remove_dir(&path).with_context(|| report("rmdir"))?;
                self.model.remove(&place);
                is_gone(&path)
            }
            Some(Node::File(file)) => match self.rng.random_range(0..16) {
                0..6 => self.append(&path, file, step).with_context(|| report("append to")),
                6..9 => self.overwrite(&path, file, step).with_context(|| report("write to")),
                9 => self.truncate(&path, file).with_context(|| report("truncate")),
                10 => self.rename(place, &path).with_context(|| report("rename over")),
                11..13 => self.model.verify_file(&path, file).with_context(|| report("look at")),
                _ => self.unlink(&place, &path, file).with_context(|| report("unlink")),
            },
        }
    }

    fn create(&mut self, place: Place, path: &Path, step: u64) -> anyhow::Result<()> {
        let content = self.bytes(step);
        let mut file = File::options().write(true).create_new(true).open(path)?;
        file.write_all(&content)?;
        file.sync_all()?;
        self.model.put(place, Node::File(step));
        self.model.contents.insert(step, content);
        Ok(())
    }

    fn make_dir(&mut self, place: Place, path: &Path) -> anyhow::Result<()> {
        fs::create_dir(path)?;
        self.model.put(place, Node::Dir);
        Ok(())
    }

    fn append(&mut self, path: &Path, id: u64, step: u64) -> anyhow::Result<()> {
        let more = self.bytes(step);
        let content = self.model.contents.get_mut(&id).context("no content")?;
        content.extend_from_slice(&more);
        let mut file = File::options().append(true).open(path)?;
        file.write_all(&more)?;
        // Every other one is stored by its close alone: if that fails, the bytes are missing in the
        // end.
        if step.is_multiple_of(2) {
            file.sync_all()?;
        }
        let (seen, wanted) = (file.metadata()?.len(), content.len() as u64);
        ensure!(seen == wanted, "{seen} bytes long, should be {wanted}");
        Ok(())
    }

    fn overwrite(&mut self, path: &Path, id: u64, step: u64) -> anyhow::Result<()> {
        let piece = self.bytes(step);
        let content = self.model.contents.get_mut(&id).context("no content")?;
        let at = self.rng.random_range(0..=content.len() + 5000);
        content.resize(content.len().max(at + piece.len()), 0);
        content[at..at + piece.len()].copy_from_slice(&piece);
        let file = File::options().write(true).open(path)?;
        file.write_all_at(&piece, at as u64)?;
        file.sync_data()?;
        Ok(())
    }

    fn truncate(&mut self, path: &Path, id: u64) -> anyhow::Result<()> {
        let length = self.rng.random_range(0..2 * PIECE);
        self.model.contents.get_mut(&id).context("no content")?.resize(length, 0);
        let file = File::options().write(true).open(path)?;
        file.set_len(length as u64)?;
        Ok(())
    }

    /// Another name for one of its files; without files, nothing.
    fn link(&mut self, place: Place, path: &Path) -> anyhow::Result<()> {
        let Some((from, file)) = self.model.files().choose(&mut self.rng) else { return Ok(()) };
        fs::hard_link(self.path(&from), path)?;
        self.model.put(place, Node::File(file));
        let (links, wanted) = (fs::metadata(path)?.nlink(), self.model.links(file));
        ensure!(links == wanted, "{links} links, should be {wanted}");
        Ok(())
    }

    /// Gives one of its files the name `place`, which may be that of another.
    fn rename(&mut self, place: Place, path: &Path) -> anyhow::Result<()> {
        let Some((from, file)) = self.model.files().choose(&mut self.rng) else { return Ok(()) };
        fs::rename(self.path(&from), path)?;
        // Two names of one file: nothing happens, as POSIX has it.
        if self.model.names.get(&place) == Some(&Node::File(file)) {
            return Ok(());
        }
        self.model.put(place, Node::File(file));
        self.model.remove(&from);
        is_gone(&self.path(&from))
    }

    fn unlink(&mut self, place: &Place, path: &Path, file: u64) -> anyhow::Result<()> {
        fs::remove_file(path)?;
        self.model.remove(place);
        is_gone(path)?;
        let left = self.model.names.iter().find(|(_, named)| **named == Node::File(file));
        match left.map(|(place, _)| self.path(place)) {
            Some(other) => self.model.verify_file(&other, file),
            None => Ok(()),
        }
    }
}

fn is_gone(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why).context("a look after it went"),
        Ok(_) => bail!("it is still there"),
    }
}
