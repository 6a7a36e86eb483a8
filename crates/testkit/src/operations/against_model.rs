//! Random operations of several users answer as the reference file system does, and leave the same
//! tree.

use std::{collections::BTreeMap, fmt::Write as _};

use sluice_meta::{
    Interrupt, Meta,
    ops::{
        create::Create,
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        setattr::{Changes, SetAttr},
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
        xattr::{RemoveXattr, SetXattr, XattrMode},
    },
    schema::Row,
};
use sluice_types::{CHUNK_SIZE, Caller, FileType, FsResult, Ino, Name, Rng, Slice};

use super::{
    clients::{Factory, NOW, at, seeds},
    state::State,
};
use crate::model::{Answer, Inode, Model, Replace};

const SEEDS: u64 = 12;
const OPS: u64 = 250;
/// No inode has this number.
const NOBODY: u64 = 999_999;

/// One call, as data: it can be shown, and made on both sides.
#[derive(Clone, Debug)]
enum Call {
    Create { dir: u64, name: String, ino: u64, kind: FileType, mode: u16, umask: u16 },
    Link { ino: u64, dir: u64, name: String },
    Unlink { dir: u64, name: String },
    Rmdir { dir: u64, name: String, hint: Option<u64> },
    Rename { from: (u64, String), to: (u64, String), replace: Replace },
    Chmod { ino: u64, mode: u16 },
    Chown { ino: u64, uid: Option<u32>, gid: Option<u32> },
    Truncate { ino: u64, length: u64 },
    Write { ino: u64, index: u32, slice: Slice },
    SetXattr { ino: u64, name: &'static str, value: Vec<u8>, exists: Option<bool> },
    RemoveXattr { ino: u64, name: &'static str },
}

/// Makes up calls that have something to do with the tree as it is.
struct Author<'m> {
    rng: &'m mut Rng,
    model: &'m Model,
}

impl Author<'_> {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize].clone()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    /// Mostly directories that exist, sometimes a file or nothing.
    fn dir(&mut self) -> u64 {
        let any = self.one_in(12);
        let inodes = &self.model.inodes;
        let dirs = inodes.iter().filter(|(_, inode)| any || inode.kind == FileType::Dir);
        let dirs: Vec<u64> = dirs.map(|(ino, _)| *ino).chain(any.then_some(NOBODY)).collect();
        self.pick(&dirs)
    }

    /// A node with a name, rarely none.
    fn node(&mut self) -> u64 {
        let mut live: Vec<u64> =
            self.model.inodes.keys().copied().filter(|ino| self.model.is_live(*ino)).collect();
        if self.one_in(20) {
            live.push(NOBODY);
        }
        self.pick(&live)
    }

    fn name(&mut self) -> String {
        format!("n{}", self.rng.below(4))
    }

    fn mode(&mut self) -> u16 {
        let bits = (self.rng.next_u64() & 0o777) as u16;
        // Mostly open to its owner, or nothing would grow.
        self.pick(&[0o700, 0o770, 0o777, 0o1777, 0o2775, 0o4755, 0o6711, 0o2766, 0, 0]) | bits
    }

    fn caller(&mut self) -> Caller {
        let user = |uid, gid, groups: &[u32]| Caller { groups: groups.to_vec(), ..Caller::user(uid, gid) };
        self.pick(&[
            Caller::client(),
            user(0, 0, &[]),
            user(1000, 1000, &[]),
            user(1000, 1000, &[]),
            user(1001, 1001, &[1000]),
            user(1001, 1001, &[1000]),
        ])
    }

    fn call(&mut self, ino: u64) -> Call {
        let (dir, name) = (self.dir(), self.name());
        match self.rng.below(20) {
            0..6 => {
                let kind = self.pick(&[
                    FileType::File,
                    FileType::File,
                    FileType::Dir,
                    FileType::Dir,
                    FileType::Symlink,
                    FileType::Fifo,
                ]);
                let (mode, umask) = if kind == FileType::Symlink {
                    (0o777, 0)
                } else {
                    (self.mode(), self.pick(&[0, 0o022]))
                };
                Call::Create { dir, name, ino, kind, mode, umask }
            }
            6 => Call::Link { ino: self.node(), dir, name },
            7 => Call::Unlink { dir, name },
            8 => {
                let known = self.model.lookup((dir, &name));
                let hint = if self.one_in(2) { known } else { None };
                Call::Rmdir { dir, name, hint }
            }
            9..13 => {
                let to = (self.dir(), self.name());
                let replace = self.pick(&[Replace::Yes, Replace::Yes, Replace::No, Replace::Exchange]);
                Call::Rename { from: (dir, name), to, replace }
            }
            other => self.change(other),
        }
    }

    /// A call that changes a node itself.
    fn change(&mut self, which: u64) -> Call {
        let ino = self.node();
        let xattr = self.pick(&["user.a", "user.b", "trusted.c"]);
        match which {
            13 => Call::Chmod { ino, mode: self.mode() },
            14 => {
                let (uid, gid) = (self.pick(&[0, 1000, 1001]), self.pick(&[0, 1000, 1001]));
                let (some, other) = (self.one_in(2), self.one_in(2));
                Call::Chown { ino, uid: some.then_some(uid), gid: other.then_some(gid) }
            }
            15 => Call::Truncate { ino, length: self.pick(&[0, 1, 4096, 5000, CHUNK_SIZE, CHUNK_SIZE + 7]) },
            16 | 17 => {
                let (pos, len) = (self.rng.below(9000) as u32, 1 + self.rng.below(9000) as u32);
                let index = self.pick(&[0, 0, 1]);
                Call::Write { ino, index, slice: Slice::whole(pos, 1 + self.rng.below(1 << 40), len) }
            }
            18 => {
                let value = vec![b'v'; self.rng.below(5) as usize];
                let exists = self.pick(&[None, None, Some(true), Some(false)]);
                Call::SetXattr { ino, name: xattr, value, exists }
            }
            _ => Call::RemoveXattr { ino, name: xattr },
        }
    }
}

impl Call {
    fn on_meta(&self, meta: &Meta, caller: Caller) -> FsResult<()> {
        let never = Interrupt::never();
        let xattr = |name: &str| Name::new(name.as_bytes()).expect("valid");
        match self.clone() {
            Self::Create { dir, name, ino, kind, mode, umask } => {
                let target = (kind == FileType::Symlink).then(|| bytes::Bytes::from_static(b"target"));
                let (at, ino) = (at(dir, &name), Ino(ino));
                meta.run(Create { at, ino, kind, mode, umask, rdev: 0, target, caller }, &never).map(drop)
            }
            Self::Link { ino, dir, name } => {
                meta.run(Link { ino: Ino(ino), at: at(dir, &name), caller }, &never).map(drop)
            }
            Self::Unlink { dir, name } => meta
                .run(Unlink { at: at(dir, &name), only: None, skip_trash: false, caller }, &never)
                .map(drop),
            Self::Rmdir { dir, name, hint } => {
                let (at, hint) = (at(dir, &name), hint.map(Ino));
                meta.run(Rmdir { at, hint, skip_trash: false, caller }, &never).map(drop)
            }
            Self::Rename { from, to, replace } => {
                let mode = match replace {
                    Replace::Yes => RenameMode::Replace,
                    Replace::No => RenameMode::NoReplace,
                    Replace::Exchange => RenameMode::Exchange,
                };
                let (from, to) = (at(from.0, &from.1), at(to.0, &to.1));
                meta.run(Rename { from, to, mode, caller }, &never).map(drop)
            }
            Self::Chmod { ino, mode } => {
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                meta.run(SetAttr { ino: Ino(ino), changes, caller }, &never).map(drop)
            }
            Self::Chown { ino, uid, gid } => {
                let changes = Changes { uid, gid, ..Changes::default() };
                meta.run(SetAttr { ino: Ino(ino), changes, caller }, &never).map(drop)
            }
            Self::Truncate { ino, length } => {
                let op = Truncate { ino: Ino(ino), length, opened: false, kill_suid: false, caller };
                meta.run(op, &never).map(drop)
            }
            Self::Write { ino, index, slice } => {
                let op = Write { ino: Ino(ino), index, slices: vec![slice], mtime: NOW };
                meta.run(op, &never).map(drop)
            }
            Self::SetXattr { ino, name, value, exists } => {
                let mode = match exists {
                    None => XattrMode::Any,
                    Some(true) => XattrMode::Replace,
                    Some(false) => XattrMode::Create,
                };
                let (name, value) = (xattr(name), value.into());
                meta.run(SetXattr { ino: Ino(ino), name, value, mode, caller }, &never)
            }
            Self::RemoveXattr { ino, name } => {
                meta.run(RemoveXattr { ino: Ino(ino), name: xattr(name), caller }, &never)
            }
        }
    }

    fn on_model(&self, model: &mut Model, who: &Caller) -> Answer {
        match self {
            Self::Create { dir, name, ino, kind, mode, umask } => {
                model.create((*dir, name), *ino, (*kind, *mode, *umask), who)
            }
            Self::Link { ino, dir, name } => model.link(*ino, (*dir, name), who),
            Self::Unlink { dir, name } => model.unlink((*dir, name), who),
            Self::Rmdir { dir, name, .. } => model.rmdir((*dir, name), who),
            Self::Rename { from, to, replace } => {
                model.rename((from.0, &from.1), (to.0, &to.1), *replace, who)
            }
            Self::Chmod { ino, mode } => model.chmod(*ino, *mode, who),
            Self::Chown { ino, uid, gid } => model.chown(*ino, *uid, *gid, who),
            Self::Truncate { ino, length } => model.truncate(*ino, *length, who),
            Self::Write { ino, index, slice } => {
                model.write(*ino, u64::from(*index) * CHUNK_SIZE + u64::from(slice.end()))
            }
            Self::SetXattr { ino, name, value, exists } => model.set_xattr(*ino, (name, value), *exists, who),
            Self::RemoveXattr { ino, name } => model.remove_xattr(*ino, name, who),
        }
    }
}

/// The tree that a store holds.
fn stored(state: &State, has_trash: bool) -> Model {
    let mut model = Model::new(has_trash);
    for (ino, attr) in state.nodes().into_iter().filter(|(ino, _)| !ino.is_trash()) {
        let (kind, mode, uid, gid) = (attr.kind, attr.mode, attr.uid, attr.gid);
        let (nlink, length) = (attr.nlink, attr.length);
        let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
        model.inodes.insert(ino.0, Inode { kind, mode, uid, gid, nlink, length, entries, xattrs });
    }
    let text = |name: &Name| String::from_utf8_lossy(name).into_owned();
    for row in state.rows.values() {
        match row {
            Row::Entry(Ino::TRASH, ..) => {}
            Row::Entry(dir, name, entry) if dir.is_trash() => {
                let trash = model.trash.as_mut().expect("something was put into a trash that is off");
                trash.insert(text(name), entry.ino.0);
            }
            Row::Entry(dir, name, entry) => {
                let dir = model.inodes.get_mut(&dir.0).expect("an entry in no directory");
                dir.entries.insert(text(name), entry.ino.0);
            }
            Row::Xattr(ino, name, value) => {
                let inode = model.inodes.get_mut(&ino.0).expect("an attribute of nothing");
                inode.xattrs.insert(text(name), value.to_vec());
            }
            _ => {}
        }
    }
    model
}

fn compare(factory: &Factory<'_>, seed: u64, has_trash: bool) {
    let store = factory();
    // Two clients take turns: what one knows from before must not mislead it.
    let trash_days = i64::from(has_trash);
    let first =
        if seed.is_multiple_of(2) { store.format_with_owners(trash_days) } else { store.format(trash_days) };
    let clients = [first, store.client()];
    let (mut rng, mut model) = (Rng::seeded(seed), Model::new(has_trash));
    let mut done = 0;
    let mut context = format!("SLUICE_SEED={seed}, trash {has_trash}\n");
    for at in 0..OPS {
        let mut author = Author { rng: &mut rng, model: &model };
        let (call, caller) = (author.call(100 + at), author.caller());
        let wanted = call.on_model(&mut model, &caller);
        writeln!(context, "uid {} {}: {call:?} -> {wanted:?}", caller.uid, caller.check).unwrap();
        let client = &clients[rng.below(2) as usize];
        match (&call.on_meta(client, caller), &wanted) {
            (Ok(()), Ok(())) => done += 1,
            (Err(error), Err(faults)) if faults.contains(error) => {}
            (answer, _) => panic!("{context}but it answered {answer:?}"),
        }
    }
    assert!(done > OPS / 20, "only {done} calls succeeded: {context}");
    let state = State::of(store.open().as_ref());
    let tree = stored(&state, has_trash);
    for (ino, wanted) in &model.inodes {
        assert_eq!(tree.inodes.get(ino), Some(wanted), "#{ino}: {context}");
    }
    assert_eq!(tree, model, "{context}");
    state.assert_tree(&context);
    state.assert_slices(&context);
}

/// What is removed is gone.
pub fn random_operations_do_what_the_model_does(factory: &Factory<'_>) {
    for seed in seeds(SEEDS) {
        compare(factory, seed, false);
    }
}

/// What is removed goes to the trash.
pub fn with_a_trash_too(factory: &Factory<'_>) {
    for seed in seeds(SEEDS) {
        compare(factory, seed, true);
    }
}
