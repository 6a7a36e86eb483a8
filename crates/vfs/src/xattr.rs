//! Extended attributes; two of them are the POSIX ACLs.
//!
//! What must stay true: names reach the engine unchanged, and ACLs are stored only if the volume
//! has them enabled.

use bytes::Bytes;
use sluice_meta::{
    EffectKind, Interrupt,
    ops::{
        acl::{AclKind, GetAcl, SetAcl},
        xattr::{GetXattr, ListXattr, RemoveXattr, SetXattr, XattrMode},
    },
    schema::AclRule,
};
use sluice_types::{Caller, FsError, FsResult, Ino, MAX_NAME, Name};

use crate::{config::VfsConfig, vfs::Vfs};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn acl_kind(name: &[u8]) -> Option<AclKind> {
    match name {
        ACCESS => Some(AclKind::Access),
        DEFAULT => Some(AclKind::Default),
        _ => None,
    }
}

const CAPABILITY: &[u8] = b"security.capability";
const SELINUX: &[u8] = b"security.selinux";

impl Vfs {
    /// Whether the volume has ACLs switched on.
    pub fn has_acl(&self) -> bool {
        self.meta.env().format().enable_acl
    }

    /// Value of an attribute. One trip.
    pub fn getxattr(&self, interrupt: &Interrupt, ino: Ino, name: &[u8]) -> FsResult<Bytes> {
        let name = self.xattr_name(ino, name)?;
        if self.is_not_kept(&name) {
            return Err(FsError::NoData);
        }
        let Some(kind) = acl_kind(&name) else { return self.meta.read(&GetXattr { ino, name }, interrupt) };
        if !self.has_acl() {
            return Err(FsError::NotSupported);
        }
        Ok(self.meta.read(&GetAcl { ino, kind }, interrupt)?.to_xattr().into())
    }

    /// Sets an attribute. Two trips.
    pub fn setxattr(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> FsResult<()> {
        let name = self.xattr_name(ino, name)?;
        if self.is_not_kept(&name) {
            return Err(FsError::NotSupported);
        }
        if self.was_done(interrupt, EffectKind::SetXattr) {
            return Ok(());
        }
        if let Some(kind) = acl_kind(&name) {
            let rule = if value.is_empty() { None } else { Some(AclRule::from_xattr(value)?) };
            return self.set_acl(caller, interrupt, ino, (kind, None), rule);
        }
        let value = Bytes::copy_from_slice(value);
        self.meta.run(SetXattr { ino, name, value, mode, caller: caller.clone() }, interrupt)?;
        self.cache().changed(ino);
        Ok(())
    }

    /// Names of all attributes, each ended by NUL. One trip, two on volumes with ACLs.
    pub fn listxattr(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<Bytes> {
        self.xattr_name(ino, b"user.any")?;
        let mut names = Vec::new();
        for name in self.meta.read(&ListXattr(ino), interrupt)? {
            names.extend_from_slice(&name);
            names.push(0);
        }
        if self.has_acl() {
            let (attr, _) = self.getattr(interrupt, ino)?;
            for (id, name) in [(attr.access_acl, ACCESS), (attr.default_acl, DEFAULT)] {
                if id != 0 {
                    names.extend_from_slice(name);
                    names.push(0);
                }
            }
        }
        Ok(names.into())
    }

    /// Removes an attribute. Two trips.
    pub fn removexattr(&self, caller: &Caller, interrupt: &Interrupt, ino: Ino, name: &[u8]) -> FsResult<()> {
        let name = self.xattr_name(ino, name)?;
        if self.was_done(interrupt, EffectKind::RemoveXattr) {
            return Ok(());
        }
        if let Some(kind) = acl_kind(&name) {
            return self.set_acl(caller, interrupt, ino, (kind, None), None);
        }
        // The kernel removes capabilities when anybody writes to a program, and checks all other
        // callers itself. So this runs as the client.
        let caller = if *name == *CAPABILITY { Caller::client() } else { caller.clone() };
        self.meta.run(RemoveXattr { ino, name, caller }, interrupt)?;
        self.cache().changed(ino);
        Ok(())
    }

    /// Sets or removes an ACL. If it is not `was` any more, nothing happens: see [`SetAcl::was`].
    ///
    /// # Errors
    /// [`FsError::Again`] then, [`FsError::NotSupported`] if the volume has no ACLs.
    pub fn set_acl(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        (kind, was): (AclKind, Option<AclRule>),
        rule: Option<AclRule>,
    ) -> FsResult<()> {
        if !self.has_acl() {
            return Err(FsError::NotSupported);
        }
        let op = SetAcl { ino, kind, rule, was, caller: caller.clone() };
        self.cache().change(ino, || self.meta.run(op, interrupt), |attr| *attr)?;
        Ok(())
    }

    /// Attributes that the kernel requests often and that are not stored.
    fn is_not_kept(&self, name: &[u8]) -> bool {
        name == SELINUX && !self.config.selinux || name == CAPABILITY && !self.config.capabilities
    }

    /// Removes the capabilities of a file whose content changes by a call for which the kernel does
    /// not do so. One trip if the file has none; no trip if the mount does not store them.
    pub fn drop_capability(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<()> {
        if !self.config.capabilities || ino.is_internal() {
            return Ok(());
        }
        let name = Name::stored(CAPABILITY);
        let found = self.meta.read(&GetXattr { ino, name: name.clone() }, interrupt);
        if found.as_ref().is_err_and(|error| *error == FsError::NoData) {
            return Ok(());
        }
        found?;
        match self.meta.run(RemoveXattr { ino, name, caller: Caller::client() }, interrupt) {
            Ok(()) | Err(FsError::NoData) => {
                self.cache().changed(ino);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Checks a name. It may hold any bytes.
    fn xattr_name(&self, ino: Ino, name: &[u8]) -> FsResult<Name> {
        let VfsConfig { xattr, capabilities, selinux, .. } = self.config;
        if !(xattr || capabilities || selinux || self.has_acl()) {
            return Err(FsError::NotImplemented);
        }
        match name.len() {
            _ if ino.is_internal() => Err(FsError::NotSupported),
            0 => Err(FsError::Invalid),
            len if len > MAX_NAME => Err(FsError::Range),
            _ => Ok(Name::stored(name)),
        }
    }
}
