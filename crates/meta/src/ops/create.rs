//! Create: a new node with its first name. Serves creat, mknod, mkdir and symlink.

use bytes::Bytes;
use sluice_types::{Attr, AttrFlags, Caller, FileType, FsError, Ino};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{At, ConflictKey, ConflictKeys, Op},
    schema::{DirStat, Entry, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Makes a node and an entry for it. Two trips: the directory is guarded, so it cannot be removed
/// meanwhile, yet others create in it at the same time.
#[derive(Clone, Debug)]
pub struct Create {
    /// Where.
    pub at: At,
    /// Number of the new node, never used before.
    pub ino: Ino,
    /// Kind of node.
    pub kind: FileType,
    /// Permission bits asked for.
    pub mode: u16,
    /// Bits taken away, unless the directory has a default ACL.
    pub umask: u16,
    /// Device number of device nodes.
    pub rdev: u32,
    /// Target of a symbolic link, 1 to 4096 bytes.
    pub target: Option<Bytes>,
    /// Who asks.
    pub caller: Caller,
}

/// Attributes after a change in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The node made or linked.
    pub attr: Attr,
    /// The directory.
    pub dir: Attr,
}

impl Op for Create {
    type Out = Made;
    const NAME: &'static str = "create";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Dir(self.at.dir)]
    }

    fn effect(&self, _made: &Made) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Create, value: self.ino.0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Made, Stop> {
        let At { dir, name } = &self.at;
        view.want(&[Want::node(*dir, Hold::Guard), Want::get(Key::Entry(*dir, name.clone()), Hold::None)])?;
        let mut parent = rules::changing_dir(view, *dir, &self.caller)?;
        if view.entry(*dir, name, Hold::None)?.is_some() {
            return Err(FsError::Exists.into());
        }
        let is_dir = self.kind == FileType::Dir;
        if is_dir && parent.nlink >= rules::MAX_LINKS {
            return Err(FsError::TooManyLinks.into());
        }
        let attr = self.attr(view, &parent)?;
        rules::admit(view, *dir, (attr.uid, attr.gid), 4096, 1)?;

        let now = view.now();
        view.insert(Row::Entry(*dir, name.clone(), Entry { kind: self.kind, ino: self.ino }));
        view.insert(Row::Node(self.ino, attr));
        if let Some(target) = &self.target {
            view.insert(Row::Symlink(self.ino, target.clone()));
        }
        if is_dir && view.known().format().dir_stats {
            view.put(Row::DirStat(self.ino, DirStat::default()));
        }
        view.write(Write::Bump { ino: *dir, nlink: i32::from(is_dir), time: Some(now) });
        rules::use_dir(view, *dir, DirStat { length: 0, space: 4096, inodes: 1 });
        rules::charge_volume(view, &attr, 4096, 1);
        rules::charge_tree(view, *dir, 4096, 1)?;
        let masked = !view.known().format().enable_acl;
        view.log(|| self.line(masked));

        parent.nlink += u32::from(is_dir);
        parent.mtime = parent.mtime.max(now);
        parent.ctime = parent.ctime.max(now);
        Ok(Made { attr, dir: parent })
    }
}

impl Create {
    /// Without ACLs the kernel of JuiceFS applies the mask before it asks.
    fn line(&self, masked: bool) -> Line {
        Line::Create {
            at: self.at.clone(),
            owner: (self.caller.uid, self.caller.gid),
            kind: self.kind,
            mode: if masked { self.mode & !self.umask } else { self.mode },
            umask: self.umask,
            target: self.target.clone().unwrap_or_default(),
            ino: self.ino,
        }
    }

    /// Attributes of the new node: what was asked for, and what it inherits.
    fn attr(&self, view: &mut View<'_>, parent: &Attr) -> Result<Attr, Stop> {
        let is_dir = self.kind == FileType::Dir;
        let mut attr =
            Attr::new(self.kind, self.mode, self.caller.uid, self.caller.gid, self.at.dir, view.now());
        attr.flags = AttrFlags(parent.flags.0 & AttrFlags::SKIP_TRASH);
        attr.tier = parent.tier;
        attr.rdev = self.rdev;
        if let Some(target) = &self.target {
            attr.length = target.len() as u64;
        }
        if parent.mode & 0o2000 != 0 {
            attr.gid = parent.gid;
            if is_dir {
                attr.mode |= 0o2000;
            } else if attr.mode & 0o2010 == 0o2010
                && !self.caller.superuser
                && !self.caller.in_group(parent.gid)
            {
                attr.mode &= !0o2000;
            }
        }
        if parent.default_acl == 0 || self.kind == FileType::Symlink {
            attr.mode &= !(self.umask & 0o777);
            return Ok(attr);
        }
        let rule = rules::acl(view, parent.default_acl)?;
        if is_dir {
            attr.default_acl = parent.default_acl;
        }
        if rule.is_minimal() {
            attr.mode &= 0o7000 | rule.mode();
        } else {
            let own = rule.inherit(attr.mode);
            attr.mode = attr.mode & 0o7000 | own.mode();
            attr.access_acl = rules::acl_id(view, &own)?;
        }
        Ok(attr)
    }
}
