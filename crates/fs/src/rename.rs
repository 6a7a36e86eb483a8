//! Moving a name.
//!
//! What must stay true: of several errors, the answer is the one that a kernel finds first. A
//! kernel looks at both names before it checks what may be changed. The operation below checks that
//! first.

use sluice_types::{Access, Attr, FsError, FsResult, Ino, Name};
use sluice_vfs::{Interrupt, OpKind, RenameMode};

use crate::{
    error::{About, Result},
    fs::Fs,
    resolve::{Last, Place},
};

type Checked<T> = std::result::Result<T, About>;

/// What a name stands for.
type Found = (Ino, Attr);

/// One of the two names.
#[derive(Clone, Copy)]
struct Side<'p> {
    dir: Ino,
    name: &'p Name,
    /// Whether a slash comes after it.
    slash: bool,
}

impl<'p> Side<'p> {
    /// `None` if the path does not end in a name.
    fn new(place: &'p Place) -> Option<Self> {
        let Last::Name(name) = &place.last else { return None };
        Some(Self { dir: place.dir, name, slash: place.slash })
    }
}

impl Fs {
    /// Moves a name; what `mode` says decides about an existing new name.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.run_two(OpKind::Rename, (from, to), |interrupt| {
            if let (Some((old_dir, old)), Some((new_dir, new))) = (self.guess(from), self.guess(to)) {
                let (old, new) = ((old_dir, &old[..]), (new_dir, &new[..]));
                match self.vfs().rename(self.caller(), interrupt, old, new, mode) {
                    Ok(()) => return Ok(()),
                    Err(error @ (FsError::Io(_) | FsError::LockLost)) => return Err(About::First(error)),
                    // Another reason may come first.
                    Err(_) => {}
                }
            }
            let old = self.place(interrupt, from).map_err(About::First)?;
            let new = self.place(interrupt, to).map_err(About::Second);
            let (Some(old), Ok(Some(new))) = (Side::new(&old), new.as_ref().map(Side::new)) else {
                // The first path comes first.
                self.may_search(interrupt, &old).map_err(About::First)?;
                let new = new?;
                self.may_search(interrupt, &new).map_err(About::Second)?;
                let exists = mode == RenameMode::NoReplace && matches!(old.last, Last::Name(_));
                return Err(if exists {
                    About::Second(FsError::Exists)
                } else {
                    About::First(FsError::Busy)
                });
            };
            if old.slash || new.slash {
                self.check_names(interrupt, old, new, mode)?;
            }
            let (from, to) = ((old.dir, &old.name[..]), (new.dir, &new.name[..]));
            match self.vfs().rename(self.caller(), interrupt, from, to, mode) {
                Err(error @ (FsError::Io(_) | FsError::LockLost)) => Err(About::First(error)),
                Err(error) => self.why_refused(interrupt, old, new, mode, error),
                Ok(()) => Ok(()),
            }
        })
    }

    /// Whether the caller may search the directory of a name.
    fn may_search(&self, interrupt: &Interrupt, place: &Place) -> FsResult<()> {
        let Last::Name(name) = &place.last else { return Ok(()) };
        self.look(interrupt, place.dir, name).map(drop)
    }

    /// Looks at both names, as a kernel does first. Returns what they stand for.
    fn check_names(
        &self,
        interrupt: &Interrupt,
        old: Side<'_>,
        new: Side<'_>,
        mode: RenameMode,
    ) -> Checked<(Found, Option<Found>)> {
        let moved = self.look(interrupt, old.dir, old.name).map_err(About::First)?;
        let there = self.look(interrupt, new.dir, new.name).map_err(About::Second)?;
        let moved = moved.ok_or(About::First(FsError::NotFound))?;
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(About::Second(FsError::Exists)),
            (RenameMode::Exchange, None) => return Err(About::Second(FsError::NotFound)),
            (RenameMode::Exchange, Some((_, attr))) if new.slash && !attr.is_dir() => {
                return Err(About::Second(FsError::NotDir));
            }
            _ => {}
        }
        if !moved.1.is_dir() && old.slash {
            return Err(About::First(FsError::NotDir));
        }
        if !moved.1.is_dir() && new.slash && mode != RenameMode::Exchange {
            return Err(About::Second(FsError::NotDir));
        }
        Ok((moved, there))
    }

    /// The answer to a rename that failed with `error`. There may be another reason, or nothing to
    /// do.
    fn why_refused(
        &self,
        interrupt: &Interrupt,
        old: Side<'_>,
        new: Side<'_>,
        mode: RenameMode,
        error: FsError,
    ) -> Checked<()> {
        let (moved, there) = self.check_names(interrupt, old, new, mode)?;
        if moved.1.is_dir() && self.is_below(interrupt, new.dir, moved.0).map_err(About::First)? {
            return Err(About::First(FsError::Invalid));
        }
        if let Some((ino, attr)) = there {
            if attr.is_dir() && self.is_below(interrupt, old.dir, ino).map_err(About::Second)? {
                let exchange = mode == RenameMode::Exchange;
                return Err(About::Second(if exchange { FsError::Invalid } else { FsError::NotEmpty }));
            }
            if ino == moved.0 {
                return Ok(());
            }
        }
        let onto_file = there.is_some_and(|(_, attr)| moved.1.is_dir() && !attr.is_dir());
        if error == FsError::Access && onto_file && mode == RenameMode::Replace {
            // Permission to change the directory that moves is asked for last.
            let denied =
                self.may_change(interrupt, old.dir).and_then(|()| self.may_change(interrupt, new.dir));
            return Err(denied.map_or(About::First(error), |()| About::Second(FsError::NotDir)));
        }
        Err(match error {
            FsError::Exists | FsError::NotEmpty | FsError::IsDir => About::Second(error),
            error => About::First(error),
        })
    }

    fn may_change(&self, interrupt: &Interrupt, dir: Ino) -> FsResult<()> {
        let (attr, _) = self.vfs().getattr(interrupt, dir)?;
        self.check(interrupt, (dir, &attr), Access::CHANGE)
    }

    /// Whether a directory is another one or lies below it.
    fn is_below(&self, interrupt: &Interrupt, dir: Ino, above: Ino) -> FsResult<bool> {
        let mut at = dir;
        while at != above {
            if at == self.vfs().root() || at == Ino::ROOT || at.is_trash() {
                return Ok(false);
            }
            at = self.vfs().getattr(interrupt, at)?.0.parent;
        }
        Ok(true)
    }
}
