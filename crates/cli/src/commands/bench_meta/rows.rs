//! The operations that are measured. Each calls the same functions as a mount.
//!
//! What must stay true: the meaning of a row's name never changes. Otherwise figures of different
//! days could not be compared.

use std::{cell::Cell, rc::Rc, sync::Arc};

use bytes::Bytes;
use sluice_data::ChunkIndex;
use sluice_meta::{
    Interrupt, Meta,
    engine::Scan,
    op::{At, Op},
    ops::{
        create::Create,
        getattr::GetAttr,
        link::Link,
        lookup::Lookup,
        rename::{Rename, RenameMode},
        setattr::{Changes, SetAttr},
        xattr::{GetXattr, ListXattr, RemoveXattr, SetXattr, XattrMode},
    },
    schema::Row as Record,
};
use sluice_types::{
    Access, CHUNK_SIZE, Caller, Clock, FileType, FsError, FsResult, Ino, Name, Slice, SystemClock,
};
use sluice_vfs::MetaIndex;

use super::{
    beside,
    scratch::{ROOT, file_waiting, rmdir, unlink},
};

/// One operation.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Makes what it needs in an empty directory.
    pub(super) work: fn(Place) -> FsResult<Work>,
}

/// An operation that can be repeated; both parts are told how often it was done before.
pub(super) struct Work {
    /// What has to be there each time anew. It is not timed.
    pub(super) before: Option<Step>,
    pub(super) operation: Step,
}

type Step = Box<dyn FnMut(u64) -> FsResult<()>>;

/// All rows, in the order of the table.
pub(super) const ROWS: &[Row] = &[
    Row { name: "mkdir", work: |place| Ok(mkdir(place)) },
    Row { name: "mvdir", work: |place| rename(place, FileType::Dir) },
    Row { name: "rmdir", work: |place| Ok(remove_dir(place)) },
    Row { name: "readdir_10", work: |place| readdir(place, 10) },
    Row { name: "readdir_1k", work: |place| readdir(place, 1000) },
    Row { name: "mknod", work: |place| Ok(mknod(place)) },
    Row { name: "create", work: |place| Ok(create(place)) },
    Row { name: "rename", work: |place| rename(place, FileType::File) },
    Row { name: "unlink", work: |place| Ok(remove_file(place)) },
    Row { name: "lookup", work: lookup },
    Row { name: "getattr", work: getattr },
    Row { name: "setattr", work: setattr },
    Row { name: "access", work: access },
    Row { name: "setxattr", work: setxattr },
    Row { name: "getxattr", work: getxattr },
    Row { name: "removexattr", work: removexattr },
    Row { name: "listxattr_1", work: |place| listxattr(place, 1) },
    Row { name: "listxattr_10", work: |place| listxattr(place, 10) },
    Row { name: "link", work: link },
    Row { name: "symlink", work: |place| Ok(symlink(place)) },
    Row { name: "newchunk", work: |place| Ok(newchunk(place)) },
    Row { name: "write", work: write },
    Row { name: "read_1", work: |place| read(place, 1) },
    Row { name: "read_10", work: |place| read(place, 10) },
];

/// Bytes of a slice.
const SLICE: u32 = 1024;
/// Writes to a chunk after which it is compacted, as in a mount.
const COMPACT_AFTER: u64 = 100;

/// A directory to work in, with what a mounted file system has.
pub(super) struct Place {
    pub(super) meta: Arc<Meta>,
    pub(super) index: Arc<MetaIndex>,
    pub(super) beside: beside::Handle,
    pub(super) interrupt: Interrupt,
    pub(super) dir: Ino,
}

impl Work {
    fn new(operation: impl FnMut(u64) -> FsResult<()> + 'static) -> Self {
        Self { before: None, operation: Box::new(operation) }
    }

    fn after(mut self, before: impl FnMut(u64) -> FsResult<()> + 'static) -> Self {
        self.before = Some(Box::new(before));
        self
    }
}

impl Place {
    fn run<O: Op>(&self, op: O) -> FsResult<O::Out> {
        self.meta.run(op, &self.interrupt)
    }

    fn ask<O: Op>(&self, op: &O) -> FsResult<O::Out> {
        self.meta.read(op, &self.interrupt)
    }

    fn at(&self, name: &str) -> FsResult<At> {
        Ok(At::new(self.dir, Name::new(name.as_bytes())?))
    }

    /// What makes a node under a new number.
    fn making(&self, name: &str, kind: FileType) -> FsResult<Create> {
        let mode = match kind {
            FileType::Dir => 0o755,
            FileType::Symlink => 0o777,
            _ => 0o644,
        };
        let umask = if kind == FileType::File { 0o022 } else { 0 };
        let ino = self.meta.new_ino(&self.interrupt)?;
        Ok(Create { at: self.at(name)?, ino, kind, mode, umask, rdev: 0, target: None, caller: ROOT })
    }

    /// Makes a node.
    fn make(&self, name: &str, kind: FileType) -> FsResult<Ino> {
        let create = self.making(name, kind)?;
        let ino = create.ino;
        self.run(create).map(|_| ino)
    }

    /// Makes a file, with so many slices.
    fn file(&self, slices: u32) -> FsResult<Ino> {
        let ino = self.make("file", FileType::File)?;
        (0..slices).try_for_each(|slice| self.write(ino, slice * SLICE)).map(|()| ino)
    }

    /// Adds a slice to a file.
    fn write(&self, ino: Ino, offset: u32) -> FsResult<()> {
        let slice = Slice::whole(offset, self.index.new_slice_id(&Interrupt::never())?, SLICE);
        self.index.commit(ino, 0, &[slice], SystemClock.now(), &|| true).map(drop)
    }

    fn setxattr(&self, ino: Ino, name: &Name, value: &[u8]) -> FsResult<()> {
        let (name, value) = (name.clone(), Bytes::copy_from_slice(value));
        self.run(SetXattr { ino, name, value, mode: XattrMode::Any, caller: ROOT })
    }
}

fn mkdir(place: Place) -> Work {
    Work::new(move |number| place.make(&format!("d{number}"), FileType::Dir).map(drop))
}

/// A name becomes another one in its directory.
fn rename(place: Place, kind: FileType) -> FsResult<Work> {
    place.make("0", kind)?;
    Ok(Work::new(move |number| {
        let (from, to) = (place.at(&number.to_string())?, place.at(&(number + 1).to_string())?);
        place.run(Rename { from, to, mode: RenameMode::Replace, caller: ROOT }).map(drop)
    }))
}

fn remove_dir(place: Place) -> Work {
    let (place, made) = (Rc::new(place), Rc::new(Cell::new(Ino::NONE)));
    let (maker, dir) = (Rc::clone(&place), Rc::clone(&made));
    Work::new(move |_| place.run(rmdir(place.at("dir")?, made.get())).map(drop))
        .after(move |_| maker.make("dir", FileType::Dir).map(|ino| dir.set(ino)))
}

/// All of a directory, with attributes.
fn readdir(place: Place, count: usize) -> FsResult<Work> {
    let files = (0..count).map(|number| place.making(&format!("f{number}"), FileType::File));
    let files = files.collect::<FsResult<Vec<Create>>>()?;
    place.meta.run_all(files, &place.interrupt).into_iter().try_for_each(|made| made.map(drop))?;
    Ok(Work::new(move |_| {
        let (mut names, mut nodes) = (0, 0);
        place.meta.each_page(Scan::Entries { dir: place.dir, nodes: true }, &place.interrupt, |page| {
            names += page.iter().filter(|row| matches!(row, Record::Entry(..))).count();
            nodes += page.iter().filter(|row| matches!(row, Record::Node(..))).count();
            Ok(())
        })?;
        if (names, nodes) == (count, count) {
            Ok(())
        } else {
            Err(FsError::io("the listing is not complete"))
        }
    }))
}

fn mknod(place: Place) -> Work {
    Work::new(move |number| place.make(&format!("f{number}"), FileType::File).map(drop))
}

/// As `mknod`, and open from before the file can be found until it is closed.
fn create(place: Place) -> Work {
    Work::new(move |number| {
        let create = place.making(&format!("f{number}"), FileType::File)?;
        let ino = create.ino;
        place.meta.register_open(ino);
        let made = place.run(create);
        place.meta.unregister_open(ino);
        made.map(drop)
    })
}

/// An empty file that is not open. Its number is let go beside.
fn remove_file(place: Place) -> Work {
    let place = Rc::new(place);
    let maker = Rc::clone(&place);
    let work = Work::new(move |_| {
        let removed = place.run(unlink(place.at("file")?))?;
        if let Some(file) = file_waiting(&removed) {
            place.beside.delete(file);
        }
        Ok(())
    });
    work.after(move |_| maker.make("file", FileType::File).map(drop))
}

fn lookup(place: Place) -> FsResult<Work> {
    place.file(0)?;
    Ok(Work::new(move |_| place.ask(&Lookup(place.at("file")?)).map(drop)))
}

fn getattr(place: Place) -> FsResult<Work> {
    let ino = place.file(0)?;
    Ok(Work::new(move |_| place.ask(&GetAttr(ino)).map(drop)))
}

/// A mode, another one each time.
fn setattr(place: Place) -> FsResult<Work> {
    let ino = place.file(0)?;
    Ok(Work::new(move |number| {
        let mode = Some(0o644 ^ (number % 2 + 1) as u16);
        let changes = Changes { mode, ..Changes::default() };
        place.run(SetAttr { ino, changes, caller: ROOT }).map(drop)
    }))
}

/// Attributes, and whether somebody else may read.
fn access(place: Place) -> FsResult<Work> {
    let ino = place.file(0)?;
    let other = Caller::user(100, 1);
    Ok(Work::new(move |_| other.check_mode(&place.ask(&GetAttr(ino))?, Access::READ)))
}

/// A value in the place of another one.
fn setxattr(place: Place) -> FsResult<Work> {
    let (ino, name) = (place.file(0)?, Name::stored(b"user.key"));
    Ok(Work::new(move |number| place.setxattr(ino, &name, format!("value{}", number % 10).as_bytes())))
}

fn getxattr(place: Place) -> FsResult<Work> {
    let (ino, name) = (place.file(0)?, Name::stored(b"user.key"));
    place.setxattr(ino, &name, b"value")?;
    Ok(Work::new(move |_| place.ask(&GetXattr { ino, name: name.clone() }).map(drop)))
}

fn removexattr(place: Place) -> FsResult<Work> {
    let (ino, name) = (place.file(0)?, Name::stored(b"user.key"));
    let (place, key) = (Rc::new(place), name.clone());
    let maker = Rc::clone(&place);
    Ok(Work::new(move |_| place.run(RemoveXattr { ino, name: name.clone(), caller: ROOT }))
        .after(move |_| maker.setxattr(ino, &key, b"value")))
}

fn listxattr(place: Place, count: usize) -> FsResult<Work> {
    let ino = place.file(0)?;
    for number in 0..count {
        place.setxattr(ino, &Name::stored(format!("user.key{number}").as_bytes()), b"value")?;
    }
    Ok(Work::new(move |_| {
        let names = place.ask(&ListXattr(ino))?;
        if names.len() == count { Ok(()) } else { Err(FsError::io("the list is not complete")) }
    }))
}

fn link(place: Place) -> FsResult<Work> {
    let ino = place.file(0)?;
    Ok(Work::new(move |number| {
        place.run(Link { ino, at: place.at(&format!("l{number}"))?, caller: ROOT }).map(drop)
    }))
}

fn symlink(place: Place) -> Work {
    let target = Bytes::from_static(b"/directory/of/the/target");
    Work::new(move |number| {
        let create = place.making(&format!("s{number}"), FileType::Symlink)?;
        place.run(Create { target: Some(target.clone()), ..create }).map(drop)
    })
}

/// A number for a slice.
fn newchunk(place: Place) -> Work {
    Work::new(move |_| place.index.new_slice_id(&Interrupt::never()).map(drop))
}

/// A slice after the one before, in a chunk that is compacted in the background.
fn write(place: Place) -> FsResult<Work> {
    let ino = place.file(0)?;
    Ok(Work::new(move |number| {
        let offset = number % (CHUNK_SIZE / u64::from(SLICE)) * u64::from(SLICE);
        place.write(ino, offset as u32)?;
        if (number + 1).is_multiple_of(COMPACT_AFTER) {
            place.beside.compact(ino);
        }
        Ok(())
    }))
}

/// The records of a chunk, which stay known until the file changes.
fn read(place: Place, slices: u32) -> FsResult<Work> {
    let ino = place.file(slices)?;
    Ok(Work::new(move |_| {
        let known = place.index.slices(ino, 0, false, &Interrupt::never())?;
        if known.len() == slices as usize { Ok(()) } else { Err(FsError::io("records are missing")) }
    }))
}
