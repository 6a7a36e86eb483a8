//! Path resolution: from a path to the directory and the node that it names.
//!
//! What must stay true: the caller needs search permission for each directory of the path, also
//! behind symbolic links.

use std::collections::VecDeque;

use sluice_types::{Access, Attr, FileType, FsError, FsResult, Ino, Name};
use sluice_vfs::{Dir, Found, Interrupt, OpKind};

use crate::{
    error::Result,
    fs::Fs,
    path::{ParsedPath, Step},
};

/// Where the trash is.
const TRASH: &str = "/.trash/";
/// Most symbolic links on the way to one file.
const MAX_LINKS: u32 = 40;

/// How a path ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// In a name.
    Name(Name),
    /// It is the root itself.
    Root,
    /// In `.`
    Dot,
    /// In `..`
    DotDot,
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// The directory of the last name.
    pub(crate) dir: Ino,
    pub(crate) last: Last,
    /// What is there.
    pub(crate) node: Option<(Ino, Attr)>,
    /// Whether a slash ends the path: it names a directory.
    pub(crate) slash: bool,
    /// The node to be opened, if that is what the path was followed for, and if it is a file.
    pub(crate) found: Option<Found>,
}

/// The place of a name that is about to be made, removed or moved.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its directory. Nobody has checked whether the caller may search it.
    pub(crate) dir: Ino,
    pub(crate) last: Last,
    pub(crate) slash: bool,
}

impl Place {
    /// The name.
    ///
    /// # Errors
    /// `other` if the path ends otherwise.
    pub(crate) fn name(&self, other: impl FnOnce(&Last) -> FsError) -> FsResult<&Name> {
        match &self.last {
            Last::Name(name) => Ok(name),
            last => Err(other(last)),
        }
    }
}

/// A resolution under way.
struct Walker<'f> {
    fs: &'f Fs,
    interrupt: &'f Interrupt,
    /// The directories on the way, without the last.
    above: Vec<Ino>,
    /// Where it is, with the attributes if they are known.
    at: (Ino, Option<Attr>),
    left: VecDeque<Step>,
    slash: bool,
    links: u32,
    /// Whether what is at the end is to be opened.
    opens: bool,
    found: Option<Found>,
}

impl Fs {
    /// What a path leads to, if anything: a symbolic link at its end is followed if `follow` says
    /// so, or if a slash comes after it.
    pub(crate) fn resolve(&self, interrupt: &Interrupt, path: &[u8], follow: bool) -> FsResult<Resolved> {
        Walker::new(self, interrupt, path)?.walk(follow)
    }

    /// As [`Self::resolve`], symbolic links followed, to open what is there. The attributes are as
    /// the engine has them.
    pub(crate) fn resolve_to_open(&self, interrupt: &Interrupt, path: &[u8]) -> FsResult<Resolved> {
        Walker { opens: true, ..Walker::new(self, interrupt, path)? }.walk(true)
    }

    /// The directory to which a path probably leads, and its last name, for a call that finds out
    /// itself whether it does. `None` for all that is not a path of names that were met before.
    pub(crate) fn guess(&self, path: &[u8]) -> Option<(Dir, Name)> {
        let ParsedPath { steps, slash: false, .. } = ParsedPath::new(path).ok()? else { return None };
        let names = steps.into_iter().map(|step| if let Step::Name(name) = step { Some(name) } else { None });
        let mut names = names.collect::<Option<Vec<Name>>>()?;
        let last = names.pop()?;
        Some((self.vfs().guess(self.caller(), self.vfs().root(), &names)?, last))
    }

    /// What exists at a path.
    pub(crate) fn existing(&self, interrupt: &Interrupt, path: &[u8], follow: bool) -> FsResult<(Ino, Attr)> {
        let resolved = self.resolve(interrupt, path, follow)?;
        let (ino, attr) = resolved.node.ok_or(FsError::NotFound)?;
        if resolved.slash && !attr.is_dir() { Err(FsError::NotDir) } else { Ok((ino, attr)) }
    }

    /// A path by which the user reaches a node: the first, if it has several names. Names in the
    /// trash do not count.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if there is none.
    pub fn path_of(&self, ino: Ino) -> Result<Vec<u8>> {
        self.run(OpKind::GetAttr, b"", |interrupt, _| {
            let paths = self.vfs().meta().paths_of(ino, self.vfs().root(), interrupt)?;
            for path in paths.into_iter().filter(|path| !path.starts_with(TRASH)) {
                match self.existing(interrupt, path.as_bytes(), false) {
                    Ok((found, _)) if found == ino => return Ok(path.into_bytes()),
                    // It was moved just now, or leads through a directory that the user may not
                    // search.
                    Ok(_) | Err(FsError::NotFound | FsError::NotDir | FsError::Access) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(FsError::NotFound)
        })
    }

    /// The place of the last name of a path. Operations on the place check its directory. No trip
    /// if that is the root.
    pub(crate) fn place(&self, interrupt: &Interrupt, path: &[u8]) -> FsResult<Place> {
        let mut walker = Walker::new(self, interrupt, path)?;
        let slash = walker.slash;
        let last = match walker.left.pop_back() {
            Some(Step::Name(name)) => Last::Name(name),
            // It has to be walked to know whether it is there.
            Some(other) => {
                walker.left.push_back(other);
                let Resolved { dir, last, slash, .. } = walker.walk(true)?;
                return Ok(Place { dir, last, slash });
            }
            None => Last::Root,
        };
        if walker.left.is_empty() {
            return Ok(Place { dir: walker.at.0, last, slash });
        }
        let (dir, attr) = walker.walk(true)?.node.ok_or(FsError::NotFound)?;
        if attr.is_dir() { Ok(Place { dir, last, slash }) } else { Err(FsError::NotDir) }
    }

    /// What a name in a directory stands for, if the caller may search the directory.
    pub(crate) fn look(&self, interrupt: &Interrupt, dir: Ino, name: &Name) -> FsResult<Option<(Ino, Attr)>> {
        let walked = self.vfs().walk(self.caller(), interrupt, dir, std::slice::from_ref(name))?;
        Ok(walked.found.last().copied())
    }
}

impl<'f> Walker<'f> {
    fn new(fs: &'f Fs, interrupt: &'f Interrupt, path: &[u8]) -> FsResult<Self> {
        let ParsedPath { steps, slash, .. } = ParsedPath::new(path)?;
        let at = (fs.vfs().root(), None);
        Ok(Self {
            fs,
            interrupt,
            above: Vec::new(),
            at,
            left: steps,
            slash,
            links: 0,
            opens: false,
            found: None,
        })
    }

    fn walk(mut self, follow: bool) -> FsResult<Resolved> {
        let mut last = Last::Root;
        loop {
            let names = self.names();
            if !names.is_empty() {
                match self.follow_names(names, follow)? {
                    Some(resolved) => return Ok(resolved),
                    None => continue,
                }
            }
            match self.left.pop_front() {
                Some(Step::Dot) => {
                    self.pass()?;
                    last = Last::Dot;
                }
                Some(Step::DotDot) => {
                    self.pass()?;
                    if let Some(above) = self.above.pop() {
                        self.at = (above, None);
                    }
                    last = Last::DotDot;
                }
                Some(Step::Bad(error)) => {
                    self.pass()?;
                    return Err(error);
                }
                Some(Step::Name(name)) => self.left.push_front(Step::Name(name)),
                None => {
                    let attr = self.attr()?;
                    let (dir, node) = (self.at.0, Some((self.at.0, attr)));
                    return Ok(Resolved { dir, last, node, slash: self.slash, found: None });
                }
            }
        }
    }

    /// The names that come next, one below the other.
    fn names(&mut self) -> Vec<Name> {
        let mut names = Vec::new();
        while let Some(Step::Name(name)) = self.left.front() {
            names.push(name.clone());
            self.left.pop_front();
        }
        names
    }

    /// Follows names. Returns where the path leads, if they end it.
    fn follow_names(&mut self, mut names: Vec<Name>, follow: bool) -> FsResult<Option<Resolved>> {
        let begin = self.at.0;
        let (vfs, caller) = (self.fs.vfs(), self.fs.caller());
        let found = if self.opens && self.left.is_empty() {
            let (walked, found) = vfs.walk_to_open(caller, self.interrupt, begin, &names)?;
            self.found = found;
            walked.found
        } else {
            vfs.walk(caller, self.interrupt, begin, &names)?.found
        };
        let count = found.len();
        let ends = self.left.is_empty() && count + 1 >= names.len();
        let resolved = |dir, name: Name, node| {
            let (slash, found) = (self.slash, self.found);
            Ok(Some(Resolved { dir, last: Last::Name(name), node, slash, found }))
        };
        let link = found.last().filter(|(_, attr)| attr.kind == FileType::Symlink);
        if let Some((link, _)) = link.copied() {
            let rest = names.split_off(count);
            let at_end = rest.is_empty() && self.left.is_empty();
            let dirs = &found[..count - 1];
            let dir = dirs.last().map_or(begin, |(ino, _)| *ino);
            if at_end && !follow && !self.slash {
                let name = names.pop().ok_or(FsError::NotFound)?;
                return resolved(dir, name, found.last().copied());
            }
            self.enter(begin, dirs);
            return self.follow_link(link, rest, at_end).map(|()| None);
        }
        if count < names.len() {
            let dir = found.last().map_or(begin, |(ino, _)| *ino);
            return match names.pop() {
                Some(name) if ends => resolved(dir, name, None),
                _ => Err(FsError::NotFound),
            };
        }
        if self.left.is_empty() {
            let dir = if count > 1 { found[count - 2].0 } else { begin };
            let name = names.pop().ok_or(FsError::NotFound)?;
            return resolved(dir, name, found.last().copied());
        }
        self.enter(begin, &found);
        Ok(None)
    }

    /// Goes down from `begin` through these directories.
    fn enter(&mut self, begin: Ino, dirs: &[(Ino, Attr)]) {
        let Some((last, attr)) = dirs.last() else { return };
        self.above.push(begin);
        self.above.extend(dirs[..dirs.len() - 1].iter().map(|(ino, _)| *ino));
        self.at = (*last, Some(*attr));
    }

    /// Goes on as a symbolic link says, then through the names after it.
    fn follow_link(&mut self, link: Ino, rest: Vec<Name>, at_end: bool) -> FsResult<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(FsError::Loop);
        }
        let target = self.fs.vfs().readlink(self.interrupt, link)?;
        let ParsedPath { mut steps, slash, absolute } = ParsedPath::new(&target)?;
        steps.extend(rest.into_iter().map(Step::Name));
        steps.append(&mut self.left);
        self.left = steps;
        self.slash |= slash && at_end;
        if absolute {
            self.above.clear();
            self.at = (self.fs.vfs().root(), None);
        }
        Ok(())
    }

    /// Fails unless the place is a directory that the caller may search.
    fn pass(&mut self) -> FsResult<()> {
        let attr = self.attr()?;
        if !attr.is_dir() {
            return Err(FsError::NotDir);
        }
        self.fs.check(self.interrupt, (self.at.0, &attr), Access::EXEC)
    }

    fn attr(&mut self) -> FsResult<Attr> {
        if let (_, Some(attr)) = self.at {
            return Ok(attr);
        }
        let attr = self.fs.vfs().walk(self.fs.caller(), self.interrupt, self.at.0, &[])?.start;
        self.at.1 = Some(attr);
        Ok(attr)
    }
}
