//! POSIX ACLs: the two attributes `system.posix_acl_access` and `system.posix_acl_default`.

use sluice_types::{Attr, Caller, FsError, Ino};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    engine::Hold,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{AclRule, Row},
    view::{Stop, View},
};

/// Which of the two ACLs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// Who may do what.
    Access,
    /// What children of a directory inherit.
    Default,
}

/// Reads an ACL. One trip, two if the rule was never seen.
#[derive(Clone, Debug)]
pub struct GetAcl {
    /// The inode.
    pub ino: Ino,
    /// Which ACL.
    pub kind: AclKind,
}

impl Op for GetAcl {
    type Out = AclRule;
    const NAME: &'static str = "getfacl";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<AclRule, Stop> {
        let attr = rules::existing(view, self.ino, Hold::None)?;
        Ok(rule_of(view, &attr, self.kind)?.ok_or(FsError::NoData)?)
    }
}

/// An ACL of a node; `None` if it has none.
fn rule_of(view: &mut View<'_>, attr: &Attr, kind: AclKind) -> Result<Option<AclRule>, Stop> {
    let id = match kind {
        AclKind::Access => attr.access_acl,
        AclKind::Default => attr.default_acl,
    };
    if id == 0 {
        return Ok(None);
    }
    let rule = rules::acl(view, id)?;
    // The mode is what `chmod` writes; the rule follows it.
    Ok(Some(if kind == AclKind::Access { rule.chmod(attr.mode) } else { (*rule).clone() }))
}

/// Sets or removes an ACL. Two trips, three for a rule that is new to this client.
#[derive(Clone, Debug)]
pub struct SetAcl {
    /// The inode.
    pub ino: Ino,
    /// Which ACL.
    pub kind: AclKind,
    /// The rule; `None` removes it.
    pub rule: Option<AclRule>,
    /// What it must replace, if that matters; [`FsError::Again`] if it is another by now. A node
    /// without the ACL has the access rule that its mode stands for, and an empty default one.
    pub was: Option<AclRule>,
    /// Who asks.
    pub caller: Caller,
}

impl Op for SetAcl {
    type Out = Attr;
    const NAME: &'static str = "setfacl";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let mut attr = rules::existing(view, self.ino, Hold::Lock)?;
        let own = !self.caller.check || self.caller.superuser || self.caller.uid == attr.uid;
        rules::require(own, FsError::Perm)?;
        rules::check_removable(&attr)?;
        if let Some(was) = &self.was {
            let found = rule_of(view, &attr, self.kind)?;
            let now = found.unwrap_or_else(|| match self.kind {
                AclKind::Access => AclRule::empty().chmod(attr.mode),
                AclKind::Default => AclRule::empty(),
            });
            rules::require(now == *was, FsError::Again)?;
        }
        let id = match &self.rule {
            Some(rule) if !rule.is_minimal() || self.kind == AclKind::Default => rules::acl_id(view, rule)?,
            _ => 0,
        };
        match self.kind {
            AclKind::Access => {
                attr.access_acl = id;
                if let Some(rule) = &self.rule {
                    attr.mode = attr.mode & 0o7000 | rule.mode();
                    if !self.caller.passes_modes() && !self.caller.in_group(attr.gid) {
                        attr.mode &= !0o2000;
                    }
                }
            }
            AclKind::Default => {
                rules::require(attr.is_dir() || self.rule.is_none(), FsError::Access)?;
                attr.default_acl = id;
            }
        }
        rules::advance_ctime(&mut attr, view.now());
        view.put(Row::Node(self.ino, attr));
        view.log(|| {
            let rule = self.rule.clone().unwrap_or_else(AclRule::empty);
            Line::SetAcl { ino: self.ino, kind: self.kind as u8 + 1, rule: rule.encode() }
        });
        Ok(attr)
    }
}
