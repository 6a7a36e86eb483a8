//! Rules that several operations share: which parents accept changes, permissions, accounting of
//! usage.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{Access, Attr, AttrFlags, Caller, FsError, Ino, Time, align4k};

use crate::{
    engine::{Hold, Write},
    fact::Fact,
    schema::{AclRule, Counter, DirStat, Key, QuotaKey, Row},
    view::{Stop, View},
    want::Want,
};

/// Most entries or sub-directories of one inode.
pub(crate) const MAX_LINKS: u32 = i32::MAX as u32;

/// Fails with `error` unless `condition`.
pub(crate) fn require(condition: bool, error: FsError) -> Result<(), FsError> {
    if condition { Ok(()) } else { Err(error) }
}

/// A directory whose entries the caller is about to change, guarded so that it cannot vanish
/// meanwhile.
pub(crate) fn changing_dir(view: &mut View<'_>, dir: Ino, caller: &Caller) -> Result<Attr, Stop> {
    let attr = existing_dir(view, dir, Hold::Guard)?;
    if dir.is_trash() || attr.parent.is_trash_hour() {
        return Err(FsError::NotFound.into());
    }
    check_changing(view, &attr, caller)?;
    Ok(attr)
}

/// As [`changing_dir`], of a directory that may have been removed into the trash.
pub(crate) fn changing_dir_in_trash(view: &mut View<'_>, dir: Ino, caller: &Caller) -> Result<Attr, Stop> {
    let attr = existing_dir(view, dir, Hold::Guard)?;
    check_changing(view, &attr, caller)?;
    Ok(attr)
}

fn check_changing(view: &mut View<'_>, dir: &Attr, caller: &Caller) -> Result<(), Stop> {
    check(view, caller, dir, Access::CHANGE)?;
    if dir.flags.has(AttrFlags::IMMUTABLE) {
        return Err(FsError::Perm.into());
    }
    Ok(())
}

/// A directory that must exist.
pub(crate) fn existing_dir(view: &mut View<'_>, dir: Ino, hold: Hold) -> Result<Attr, Stop> {
    let attr = existing(view, dir, hold)?;
    if attr.is_dir() { Ok(attr) } else { Err(FsError::NotDir.into()) }
}

/// A node that must exist.
pub(crate) fn existing(view: &mut View<'_>, ino: Ino, hold: Hold) -> Result<Attr, Stop> {
    view.node(ino, hold)?.ok_or(Stop::Fail(FsError::NotFound))
}

/// Whether `caller` may do `access` on a node, by its mode or its ACL.
pub(crate) fn check(view: &mut View<'_>, caller: &Caller, attr: &Attr, access: Access) -> Result<(), Stop> {
    if caller.passes_modes() {
        return Ok(());
    }
    // The group bits are the mask of an ACL: if they are empty it cannot grant anything.
    if attr.access_acl != 0 && attr.mode & 0o070 != 0 {
        let rule = acl(view, attr.access_acl)?;
        return Ok(rule.check(attr, caller, access)?);
    }
    Ok(caller.check_mode(attr, access)?)
}

/// Whether `caller` may remove `node` from `dir`, which it may write, in spite of the sticky bit.
pub(crate) fn check_sticky(caller: &Caller, dir: &Attr, node: &Attr) -> Result<(), Stop> {
    let owner = caller.uid == dir.uid || caller.uid == node.uid;
    if !caller.check || caller.superuser || dir.mode & 0o1000 == 0 || owner {
        return Ok(());
    }
    Err(FsError::Perm.into())
}

/// A node that must not be immutable or append-only.
pub(crate) fn check_removable(node: &Attr) -> Result<(), Stop> {
    if node.flags.any(AttrFlags::IMMUTABLE | AttrFlags::APPEND) {
        return Err(FsError::Perm.into());
    }
    Ok(())
}

/// Seconds by which the clocks of clients may differ.
const CLOCK_SKEW: i64 = 60;

/// Sets the ctime of a node that changes: now, or just after the last change if the clock of this
/// client is a bit behind that of another. So changes do not lead back to an earlier record. A
/// commit relies on this: it compares the node of a file instead of the file's parents. A ctime
/// that is far ahead is from a clock that was wrong, and is not kept.
pub(crate) fn advance_ctime(attr: &mut Attr, now: Time) {
    let is_wrong = attr.ctime.sec > now.sec.saturating_add(CLOCK_SKEW);
    attr.ctime = if is_wrong { now } else { now.max(attr.ctime.next()) };
}

/// An ACL rule by id.
pub(crate) fn acl(view: &mut View<'_>, id: u32) -> Result<Arc<AclRule>, Stop> {
    if let Some(rule) = view.known().acl(id) {
        return Ok(rule);
    }
    match view.get(&Key::Acl(id), Hold::None)? {
        // One that this very batch makes may never be: another client may take its number.
        Some(Row::Acl(_, rule)) if view.is_pending(&Key::Acl(id)) => Ok(Arc::new(rule)),
        Some(Row::Acl(_, rule)) => {
            let rule = Arc::new(rule);
            view.learns(Fact::Acl(id, rule.clone()));
            Ok(rule)
        }
        _ => Err(FsError::io(format_args!("ACL rule {id} is missing; run `sluice fsck`")).into()),
    }
}

/// Id of a rule, which is stored if no equal one is known.
pub(crate) fn acl_id(view: &mut View<'_>, rule: &AclRule) -> Result<u32, Stop> {
    if let Some(id) = view.known().acl_id(rule) {
        return Ok(id);
    }
    let last = counter(view, Counter::AclMaxId)?;
    // One that this batch makes is known to nobody else yet.
    let mut made = last as u32;
    while view.is_pending(&Key::Acl(made)) {
        if matches!(view.get(&Key::Acl(made), Hold::None)?, Some(Row::Acl(_, pending)) if pending == *rule) {
            return Ok(made);
        }
        made -= 1;
    }
    let id = last as u32 + 1;
    view.put(Row::Counter(Counter::AclMaxId, i64::from(id)));
    view.insert(Row::Acl(id, rule.clone()));
    Ok(id)
}

/// A counter that this operation is about to put.
pub(crate) fn counter(view: &mut View<'_>, counter: Counter) -> Result<i64, Stop> {
    Ok(match view.get(&Key::Counter(counter), Hold::Lock)? {
        Some(Row::Counter(_, value)) => value,
        _ => 0,
    })
}

/// Usage of one directory entry that stands for a node.
pub(crate) fn entry_usage(attr: &Attr) -> DirStat {
    let length = if attr.is_file() { attr.length } else { 0 };
    DirStat { length: length as i64, space: align4k(length), inodes: 1 }
}

/// The opposite.
pub(crate) fn minus(stat: DirStat) -> DirStat {
    DirStat { length: -stat.length, space: -stat.space, inodes: -stat.inodes }
}

/// Records that the direct children of `dir` use `by` more.
pub(crate) fn use_dir(view: &mut View<'_>, dir: Ino, by: DirStat) {
    if view.known().format().dir_stats && !by.is_zero() {
        view.write(Write::Use(dir, by));
    }
}

/// Records that the volume, and whoever owns the node `attr`, uses `space` bytes and `inodes`
/// inodes more.
pub(crate) fn charge_volume(view: &mut View<'_>, attr: &Attr, space: i64, inodes: i64) {
    view.write(Write::Count(Counter::UsedSpace, space));
    view.write(Write::Count(Counter::TotalInodes, inodes));
    if view.known().format().user_group_quota {
        view.write(Write::Charge(QuotaKey::User(attr.uid), space, inodes));
        view.write(Write::Charge(QuotaKey::Group(attr.gid), space, inodes));
    }
}

/// Records that the tree under `dir` uses `space` bytes and `inodes` inodes more, for every quota
/// above.
pub(crate) fn charge_tree(view: &mut View<'_>, dir: Ino, space: i64, inodes: i64) -> Result<(), Stop> {
    if !view.known().limits_dirs() {
        return Ok(());
    }
    for dir in counted_above(view, dir)? {
        if view.known().quota(QuotaKey::Dir(dir)).is_some() {
            view.write(Write::Charge(QuotaKey::Dir(dir), space, inodes));
        }
    }
    Ok(())
}

/// Whether the limits of the volume, the owner and the trees above `dir` admit that much more.
pub(crate) fn admit(
    view: &mut View<'_>,
    dir: Ino,
    (uid, gid): (u32, u32),
    space: i64,
    inodes: i64,
) -> Result<(), Stop> {
    let pending = (view.counted(Counter::UsedSpace), view.counted(Counter::TotalInodes));
    view.known().admit(space, inodes, pending)?;
    if space <= 0 && inodes <= 0 {
        return Ok(());
    }
    if view.known().format().user_group_quota {
        admit_under(view, QuotaKey::User(uid), space, inodes)?;
        admit_under(view, QuotaKey::Group(gid), space, inodes)?;
    }
    admit_tree(view, dir, space, inodes)
}

/// Whether the quotas above a file's directories admit `space` more bytes for each of its names
/// there. One that is above several of them counts all.
pub(crate) fn admit_names(view: &mut View<'_>, parents: &[(Ino, i64)], space: i64) -> Result<(), Stop> {
    if space <= 0 || !view.known().limits_dirs() {
        return Ok(());
    }
    let mut names: FxHashMap<Ino, i64> = FxHashMap::default();
    for (parent, links) in parents {
        for dir in counted_above(view, *parent)? {
            *names.entry(dir).or_default() += links;
        }
    }
    for (dir, links) in names {
        admit_under(view, QuotaKey::Dir(dir), space.saturating_mul(links), 0)?;
    }
    Ok(())
}

/// Whether the quotas above `dir` admit that much more.
pub(crate) fn admit_tree(view: &mut View<'_>, dir: Ino, space: i64, inodes: i64) -> Result<(), Stop> {
    if view.known().limits_dirs() && dir != Ino::NONE {
        for dir in counted_above(view, dir)? {
            admit_under(view, QuotaKey::Dir(dir), space, inodes)?;
        }
    }
    Ok(())
}

/// Whether the quotas above `to` admit what moves there from `from`: those above both count it
/// already.
pub(crate) fn admit_move(
    view: &mut View<'_>,
    (from, to): (Ino, Ino),
    space: i64,
    inodes: i64,
) -> Result<(), Stop> {
    if from == to || !view.known().limits_dirs() {
        return Ok(());
    }
    let counted = counted_above(view, from)?;
    for dir in counted_above(view, to)? {
        if !counted.contains(&dir) {
            admit_under(view, QuotaKey::Dir(dir), space, inodes)?;
        }
    }
    Ok(())
}

/// Whether other quotas count what is in `from` than what is in `to`.
pub(crate) fn counted_apart(view: &mut View<'_>, from: Ino, to: Ino) -> Result<bool, Stop> {
    if from == to || !view.known().limits_dirs() {
        return Ok(false);
    }
    let mut quotas = [FxHashSet::default(), FxHashSet::default()];
    for (quotas, dir) in quotas.iter_mut().zip([from, to]) {
        let dirs = counted_above(view, dir)?;
        quotas.extend(dirs.into_iter().filter(|dir| view.known().quota(QuotaKey::Dir(*dir)).is_some()));
    }
    Ok(quotas[0] != quotas[1])
}

/// Whether one quota, if there is one, admits that much more. What this client knows of it is a
/// guess, at which the commit finds out; a reason to refuse is only what the record says.
fn admit_under(view: &mut View<'_>, key: QuotaKey, space: i64, inodes: i64) -> Result<(), Stop> {
    let Some(known) = view.known().quota(key) else { return Ok(()) };
    if space <= 0 && inodes <= 0 {
        return Ok(());
    }
    let record = Key::Quota(key);
    let earlier = view.charged(key);
    // Of what does not grow nothing is asked.
    let grown = |more: i64, earlier: i64| if more > 0 { earlier.saturating_add(more) } else { 0 };
    let (all_space, all_inodes) = (grown(space, earlier.0), grown(inodes, earlier.1));
    if view.again() || view.has_read(&record) || !known.admits(all_space, all_inodes) {
        let Some(Row::Quota(_, now)) = view.get(&record, Hold::None)? else { return Ok(()) };
        if !view.is_pending(&record) {
            let mut stored = now;
            stored.charge(-earlier.0, -earlier.1);
            view.learns(Fact::Quota(key, stored));
        }
        require(now.admits(space, inodes), FsError::Quota)?;
    }
    view.expect_quota(key, all_space, all_inodes);
    Ok(())
}

/// `dir` and the directories above it, up to the root of the volume or of the trash. Unheld they
/// may be those of a moment ago; guarded they are so at the commit, too.
pub(crate) fn ancestors(view: &mut View<'_>, dir: Ino, hold: Hold) -> Result<Vec<Ino>, Stop> {
    climb(dir, |dir| Ok(view.node(dir, hold)?.map(|attr| attr.parent)))
}

/// The directories whose quotas count what is in `dir`: itself and those above it, as they are at
/// the commit. No directory moves meanwhile: whoever moves one counts that, and the count is held.
fn counted_above(view: &mut View<'_>, dir: Ino) -> Result<Vec<Ino>, Stop> {
    let moves = Key::Counter(Counter::DirMoves);
    match view.known().moves() {
        Some(known) if !view.again() && !view.has_read(&moves) => {
            view.remember(Row::Counter(Counter::DirMoves, known));
        }
        _ => {
            view.want(&[Want::get(moves, Hold::Lock), Want::node(dir, Hold::Guard)])?;
            // Engines hold a record that is there.
            if counter(view, Counter::DirMoves)? == 0 {
                view.put(Row::Counter(Counter::DirMoves, 1));
            }
        }
    }
    climb(dir, |dir| view.above(dir))
}

fn climb(dir: Ino, mut above: impl FnMut(Ino) -> Result<Option<Ino>, Stop>) -> Result<Vec<Ino>, Stop> {
    let (mut chain, mut seen) = (vec![dir], FxHashSet::default());
    let mut at = dir;
    while at != Ino::ROOT && !at.is_trash() {
        let Some(parent) = above(at)? else { break };
        at = parent;
        if at == Ino::NONE || !seen.insert(at) {
            break;
        }
        chain.push(at);
    }
    Ok(chain)
}
