//! Writes a volume as a JSON dump.

use std::{collections::VecDeque, io::Write, thread};

use sluice_meta::{
    engine::{Engine, Found, Read},
    schema::{Key, Row},
};
use sluice_types::{Attr, FileType, Ino, Name, Time};

use crate::{
    DumpError, DumpOptions,
    fetch::{Coming, Fetch, Next, Part, Parts, join},
    head::{acls, head, xattrs},
    json::{Node, Tree, Writer},
    log::LogEnd,
    source::Source,
};

/// Sub-directories of a directory that are read ahead.
const DIRS_AHEAD: usize = 8;

/// Writes the volume of `engine` to `out`, and gives `out` back. `progress` hears of entries.
///
/// # Errors
/// If the database cannot be read, or `out` cannot be written.
pub fn dump_json<W: Write>(
    engine: &dyn Engine,
    out: W,
    options: &DumpOptions,
    progress: &dyn Fn(u64),
) -> Result<W, DumpError> {
    let log = LogEnd::read(engine)?;
    // The thread that writes reads, too, what nobody read ahead.
    let source = &Source::now(engine, options.threads.max(1) + 1, options.throttled)?;
    let mut head = head(source, options.keep_secrets)?;
    (head.last_logged, head.lines) = (log.last, log.lines);
    let mut writer = Writer::new(out, &head);
    let fetch = Fetch::new(source, acls(source)?, xattrs(source)?);
    let root =
        attr(source, options.root)?.filter(Attr::is_dir).ok_or(DumpError::NoDirectory(options.root))?;
    let mut roots = vec![Node::new(options.root, root)];
    if !options.skip_trash && options.root == Ino::ROOT {
        roots.push(attr(source, Ino::TRASH)?.map_or_else(no_trash, |attr| Node::new(Ino::TRASH, attr)));
    }
    fetch.fill(roots.iter_mut())?;
    thread::scope(|scope| {
        let threads = (0..options.threads.max(1)).map(|_| fetch.start(scope)).collect();
        let done = write_trees(&fetch, roots, &mut writer, progress);
        fetch.stop();
        join(threads);
        done
    })?;
    writer.finish()
}

/// Writes the trees below `roots`: that of the files, and that of the trash if it is wanted.
pub(crate) fn write_trees<W: Write>(
    parts: &dyn Parts,
    roots: Vec<Node>,
    writer: &mut Writer<W>,
    progress: &dyn Fn(u64),
) -> Result<(), DumpError> {
    let mut walk = Walk { parts, writer, progress };
    [Tree::Files, Tree::Trash].into_iter().zip(roots).try_for_each(|(tree, root)| walk.tree(tree, root))
}

/// The trash has no record before the first file is in it.
pub(crate) fn no_trash() -> Node {
    Node::new(Ino::TRASH, Attr::new(FileType::Dir, 0o555, 0, 0, Ino::ROOT, Time::default()))
}

fn attr(source: &Source<'_>, ino: Ino) -> Result<Option<Attr>, DumpError> {
    Ok(match source.read(&[Read::Get(Key::Node(ino))])?.into_iter().next() {
        Some(Found::Row(Some(Row::Node(_, attr)))) => Some(attr),
        _ => None,
    })
}

/// A directory that is being written.
struct Open {
    ino: Ino,
    /// Sub-directories that are still to be written, the first of them read ahead.
    dirs: VecDeque<(Name, Node, Option<Coming>)>,
    next: Next,
}

struct Walk<'a, W> {
    parts: &'a dyn Parts,
    writer: &'a mut Writer<W>,
    progress: &'a dyn Fn(u64),
}

impl<W: Write> Walk<'_, W> {
    /// Writes a tree. The way down is a list and not the stack, which a deep tree would overflow.
    fn tree(&mut self, tree: Tree, mut root: Node) -> Result<(), DumpError> {
        let part = self.parts.read(root.ino, None)?;
        let ino = root.ino;
        // A part of a volume is a volume once it is loaded.
        if tree == Tree::Files {
            root.ino = Ino::ROOT;
        }
        self.writer.begin(tree, &root);
        let mut open = vec![self.part(ino, part)?];
        while let Some(dir) = open.last_mut() {
            if let Some((name, node, coming)) = dir.dirs.pop_front() {
                read_ahead(self.parts, dir);
                self.writer.directory(&name, &node)?;
                let part = match coming {
                    Some(coming) => self.parts.take(&coming)?,
                    None => self.parts.read(node.ino, None)?,
                };
                let below = self.part(node.ino, part)?;
                open.push(below);
                continue;
            }
            let ino = dir.ino;
            let part = match std::mem::replace(&mut dir.next, Next::End) {
                Next::End => {
                    self.writer.close();
                    open.pop();
                    continue;
                }
                Next::At(cursor) => self.parts.read(ino, Some(&cursor))?,
                Next::Coming(coming) => self.parts.take(&coming)?,
            };
            *dir = self.part(ino, part)?;
        }
        Ok(())
    }

    /// Writes what of a part is no directory.
    fn part(&mut self, ino: Ino, part: Part) -> Result<Open, DumpError> {
        let count = part.entries.len() as u64;
        let mut open = Open { ino, dirs: VecDeque::new(), next: part.next };
        for (name, node) in part.entries {
            if node.attr.is_dir() {
                open.dirs.push_back((name, node, None));
            } else {
                self.writer.file(&name, &node)?;
            }
        }
        read_ahead(self.parts, &mut open);
        (self.progress)(count);
        Ok(open)
    }
}

fn read_ahead(parts: &dyn Parts, dir: &mut Open) {
    for (_, node, coming) in dir.dirs.iter_mut().take(DIRS_AHEAD).filter(|(.., coming)| coming.is_none()) {
        *coming = parts.ahead(node.ino);
        if coming.is_none() {
            return;
        }
    }
}
