//! Calls that read and change attributes.

use pyo3::{exceptions::PyValueError, prelude::*};
use sluice_fs::{Access, Acl, AclEntry, AclRule, SetTime, Time, XattrMode};

use crate::{
    stat::{StatFields, stat_fields},
    volume::Volume,
};

/// Tag, id and permissions of one entry of an ACL.
type AclFields = (u32, u32, u16);

/// What an ACL has in place of permissions that it does not state.
const UNSET: u16 = 0xFFFF;

#[pymethods]
impl Volume {
    fn stat(&self, py: Python<'_>, path: &[u8]) -> PyResult<StatFields> {
        self.run(py, |fs| fs.stat(path)).map(|stat| stat_fields(stat.ino.0, &stat.attr))
    }

    fn lstat(&self, py: Python<'_>, path: &[u8]) -> PyResult<StatFields> {
        self.run(py, |fs| fs.lstat(path)).map(|stat| stat_fields(stat.ino.0, &stat.attr))
    }

    /// Total and used bytes, used and free inodes.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let size = self.run(py, |fs| Ok(fs.statfs()))?;
        Ok((size.total, size.used, size.inodes, size.free_inodes))
    }

    fn access(&self, py: Python<'_>, path: &[u8], mode: u8) -> PyResult<()> {
        self.run(py, |fs| fs.access(path, Access(mode & 7)))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u16) -> PyResult<()> {
        self.run(py, |fs| fs.set_mode(path, mode & 0o7777))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| fs.set_owner(path, uid, gid, follow))
    }

    /// Sets times in nanoseconds since 1970; `None` is the time of the call.
    fn utime(&self, py: Python<'_>, path: &[u8], times: Option<(i64, i64)>, follow: bool) -> PyResult<()> {
        let at = |nanos| Some(SetTime::At(Time::from_nanos(nanos)));
        let (atime, mtime) =
            times.map_or((Some(SetTime::Now), Some(SetTime::Now)), |(atime, mtime)| (at(atime), at(mtime)));
        self.run(py, |fs| fs.set_times(path, atime, mtime, follow))
    }

    fn truncate(&self, py: Python<'_>, path: &[u8], length: u64) -> PyResult<()> {
        self.run(py, |fs| fs.set_len(path, length))
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        name: &[u8],
    ) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let value = self.run(py, |fs| fs.xattr(path, name))?;
        Ok(pyo3::types::PyBytes::new(py, &value))
    }

    /// Sets an extended attribute: 0 makes or replaces it, 1 makes it, 2 replaces it.
    fn setxattr(&self, py: Python<'_>, path: &[u8], name: &[u8], value: &[u8], flags: u32) -> PyResult<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(PyValueError::new_err(format!("setxattr has no flags {flags}"))),
        };
        self.run(py, |fs| fs.set_xattr(path, name, value, mode))
    }

    fn listxattr(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<Vec<u8>>> {
        self.run(py, |fs| fs.xattrs(path))
    }

    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.remove_xattr(path, name))
    }

    /// The entries of an ACL; none if there is no ACL.
    fn getacl(&self, py: Python<'_>, path: &[u8], default: bool) -> PyResult<Vec<AclFields>> {
        let rule = self.run(py, |fs| fs.acl(path, which(default)))?;
        Ok(rule.map(|rule| to_entries(&rule)).unwrap_or_default())
    }

    /// Sets an ACL, or removes it if there are no entries.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn setacl(&self, py: Python<'_>, path: &[u8], default: bool, entries: Vec<AclFields>) -> PyResult<()> {
        let rule = if entries.is_empty() { None } else { Some(to_rule(&entries)?) };
        self.run(py, |fs| fs.set_acl(path, which(default), rule.as_ref()))
    }
}

const fn which(default: bool) -> Acl {
    if default { Acl::Default } else { Acl::Access }
}

fn to_entries(rule: &AclRule) -> Vec<AclFields> {
    let mut entries = vec![(0x01, 0, rule.owner)];
    entries.extend(rule.users.iter().map(|entry| (0x02, entry.id, entry.perm)));
    entries.push((0x04, 0, rule.group));
    entries.extend(rule.groups.iter().map(|entry| (0x08, entry.id, entry.perm)));
    if rule.mask != UNSET {
        entries.push((0x10, 0, rule.mask));
    }
    entries.push((0x20, 0, rule.other));
    entries
}

fn to_rule(entries: &[AclFields]) -> PyResult<AclRule> {
    let mut rule = AclRule::empty();
    for &(tag, id, perm) in entries {
        if perm > 7 {
            return Err(PyValueError::new_err(format!("permissions of an ACL are 0 to 7, not {perm}")));
        }
        match tag {
            0x01 => rule.owner = perm,
            0x02 => rule.users.push(AclEntry { id, perm }),
            0x04 => rule.group = perm,
            0x08 => rule.groups.push(AclEntry { id, perm }),
            0x10 => rule.mask = perm,
            0x20 => rule.other = perm,
            _ => return Err(PyValueError::new_err(format!("an ACL has no entries with the tag {tag}"))),
        }
    }
    Ok(rule)
}
