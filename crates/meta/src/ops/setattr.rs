//! Setattr: owner, mode, times and flags of an inode. `truncate` sets the length.

use sluice_types::{Access, Attr, AttrFlags, Caller, FsError, Ino, Time};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{QuotaKey, Row},
    view::{Stop, View},
};

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the change happens.
    Now,
    /// This one.
    At(Time),
}

/// Changes attributes. Two trips.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// `chattr` flags.
    pub flags: Option<AttrFlags>,
    /// Whether setuid and setgid go, as the kernel asks when an unprivileged caller writes or
    /// truncates.
    pub kill_suid: bool,
}

impl Changes {
    /// What is asked for, in the bits of the kernel's request. Flags are the highest.
    fn bits(&self) -> u16 {
        let time = |time, bit: u16, now: u16| match time {
            None => 0,
            Some(SetTime::At(_)) => bit,
            Some(SetTime::Now) => bit | now,
        };
        u16::from(self.mode.is_some())
            | u16::from(self.uid.is_some()) << 1
            | u16::from(self.gid.is_some()) << 2
            | time(self.atime, 1 << 4, 1 << 7)
            | time(self.mtime, 1 << 5, 1 << 8)
            | u16::from(self.flags.is_some()) << 15
    }
}

/// Changes attributes of an inode. Two trips.
#[derive(Clone, Debug)]
pub struct SetAttr {
    /// The inode.
    pub ino: Ino,
    /// What changes.
    pub changes: Changes,
    /// Who asks.
    pub caller: Caller,
}

impl Op for SetAttr {
    type Out = Attr;
    const NAME: &'static str = "setattr";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _attr: &Attr) -> Option<Effect> {
        Some(Effect { kind: EffectKind::SetAttr, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let before = rules::existing(view, self.ino, Hold::Lock)?;
        // Who has it open may go on as if it were not in the trash.
        let kept = before.parent.is_trash_hour() && !view.known().is_open(self.ino);
        rules::require(!kept || !self.caller.check, FsError::Perm)?;
        self.frozen(&before)?;
        let mut attr = before;
        self.owner(&before, &mut attr)?;
        self.mode(view, &before, &mut attr)?;
        self.times(view, &before, &mut attr)?;
        if let Some(flags) = self.changes.flags {
            rules::require(self.caller.is_privileged(), FsError::Perm)?;
            attr.flags = flags;
        }
        if attr == before {
            return Ok(attr);
        }
        rules::advance_ctime(&mut attr, view.now());
        view.put(Row::Node(self.ino, attr));
        view.log(|| Line::SetAttr { ino: self.ino, set: self.changes.bits(), attr });
        // The root belongs to the volume, and counts for nobody.
        if view.known().format().user_group_quota && self.ino != Ino::ROOT {
            recharge(view, &before, &attr);
        }
        Ok(attr)
    }
}

impl SetAttr {
    /// What `chattr +i` and `+a` forbid, to the superuser too: everything but the flags, and with
    /// `+a` times set to now.
    fn frozen(&self, before: &Attr) -> Result<(), Stop> {
        let changes = &self.changes;
        let times = [changes.atime, changes.mtime];
        let touches = times.contains(&Some(SetTime::Now));
        let sets = changes.mode.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || times.iter().any(|time| matches!(time, Some(SetTime::At(_))));
        let (fixed, grows) = (AttrFlags::IMMUTABLE, AttrFlags::APPEND);
        let forbidden = sets && before.flags.any(fixed | grows) || touches && before.flags.has(fixed);
        Ok(rules::require(!forbidden, FsError::Perm)?)
    }

    fn owner(&self, before: &Attr, attr: &mut Attr) -> Result<(), Stop> {
        let changes = &self.changes;
        if let Some(gid) = changes.gid
            && gid != before.gid
        {
            let own = self.caller.uid == before.uid && (self.caller.admitted || self.caller.in_group(gid));
            rules::require(self.caller.is_privileged() || own, FsError::Perm)?;
            attr.gid = gid;
        }
        if let Some(uid) = changes.uid
            && uid != before.uid
        {
            rules::require(self.caller.is_privileged(), FsError::Perm)?;
            attr.uid = uid;
        }
        let touched = changes.uid.is_some() || changes.gid.is_some();
        rules::require(
            !touched || self.caller.is_privileged() || self.caller.uid == before.uid,
            FsError::Perm,
        )?;
        // Whoever it was that gave the file away: nobody shall get a program that runs as its new
        // owner. Linux does so with all but directories.
        if !before.is_dir() && (changes.kill_suid || touched) {
            attr.mode = without_suid(attr);
            if !self.caller.is_privileged() && !self.caller.in_group(before.gid) {
                attr.mode &= !0o2000;
            }
        }
        Ok(())
    }

    fn mode(&self, view: &mut View<'_>, before: &Attr, attr: &mut Attr) -> Result<(), Stop> {
        let Some(mut mode) = self.changes.mode else { return Ok(()) };
        let own = self.caller.uid == before.uid;
        rules::require(self.caller.is_privileged() || own, FsError::Perm)?;
        if !self.caller.passes_modes() && !self.caller.in_group(attr.gid) && !before.is_dir() {
            mode &= !0o2000;
        }
        attr.mode = mode & 0o7777;
        if before.access_acl != 0 {
            let rule = rules::acl(view, before.access_acl)?.chmod(mode);
            attr.mode = mode & 0o7000 | rule.mode();
            attr.access_acl = rules::acl_id(view, &rule)?;
        }
        Ok(())
    }

    fn times(&self, view: &mut View<'_>, before: &Attr, attr: &mut Attr) -> Result<(), Stop> {
        let own = self.caller.is_privileged() || self.caller.uid == before.uid;
        for (change, time) in [(self.changes.atime, &mut attr.atime), (self.changes.mtime, &mut attr.mtime)] {
            match change {
                None => {}
                Some(SetTime::At(at)) => {
                    rules::require(own, FsError::Perm)?;
                    *time = at;
                }
                Some(SetTime::Now) => {
                    if !own {
                        rules::check(view, &self.caller, before, Access::WRITE)?;
                    }
                    *time = view.now();
                }
            }
        }
        Ok(())
    }
}

/// What the node uses now counts for its new owner.
fn recharge(view: &mut View<'_>, before: &Attr, attr: &Attr) {
    let mut charge = |key, sign| view.write(Write::Charge(key, sign * attr.space(), sign));
    if attr.uid != before.uid {
        charge(QuotaKey::User(before.uid), -1);
        charge(QuotaKey::User(attr.uid), 1);
    }
    if attr.gid != before.gid {
        charge(QuotaKey::Group(before.gid), -1);
        charge(QuotaKey::Group(attr.gid), 1);
    }
}

/// The mode without setuid, and without setgid where that means execution as a group.
pub fn without_suid(attr: &Attr) -> u16 {
    let setgid = if attr.mode & 0o010 != 0 { 0o2000 } else { 0 };
    attr.mode & !(0o4000 | setgid)
}
