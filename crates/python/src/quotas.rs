//! Calls on quotas.

use pyo3::{exceptions::PyValueError, prelude::*};
use sluice_fs::{Quota, QuotaLimits, QuotaOwner};

use crate::volume::Volume;

/// Bytes and inodes allowed, and used. -1 for no limit.
type QuotaFields = (i64, i64, i64, i64);

#[pymethods]
impl Volume {
    /// A quota, if there is one.
    fn quota(&self, py: Python<'_>, owner: &[u8]) -> PyResult<Option<QuotaFields>> {
        let owner = parse(owner)?;
        Ok(self.run(py, |fs| fs.quota(owner))?.map(fields))
    }

    /// The quotas that have limits, with their names.
    fn quotas(&self, py: Python<'_>) -> PyResult<Vec<(Vec<u8>, QuotaFields)>> {
        let quotas = self.run(py, sluice_fs::Fs::quotas)?;
        Ok(quotas.into_iter().map(|(name, quota)| (text(name), fields(quota))).collect())
    }

    /// Sets limits: bytes and inodes, 0 for no limit, `None` to keep what is set. Returns whether
    /// the usage is exact.
    fn set_quota(
        &self,
        py: Python<'_>,
        owner: &[u8],
        limits: (Option<u64>, Option<u64>),
        strict: bool,
    ) -> PyResult<bool> {
        let (owner, limits) = (parse(owner)?, QuotaLimits { space: limits.0, inodes: limits.1 });
        Ok(self.run(py, |fs| fs.set_quota(owner, limits, strict))?.settled)
    }

    /// Removes limits.
    fn remove_quota(&self, py: Python<'_>, owner: &[u8]) -> PyResult<bool> {
        let owner = parse(owner)?;
        self.run(py, |fs| fs.remove_quota(owner))
    }

    /// Counts again: the quota as it was on record, and the bytes and inodes that were counted.
    fn check_quota(
        &self,
        py: Python<'_>,
        owner: &[u8],
        repair: bool,
        strict: bool,
    ) -> PyResult<(QuotaFields, (i64, i64))> {
        let owner = parse(owner)?;
        let usage = self.run(py, |fs| fs.check_quota(owner, repair, strict))?;
        Ok((fields(usage.stored.unwrap_or_default()), usage.counted))
    }
}

const fn fields(quota: Quota) -> QuotaFields {
    (quota.max_space, quota.max_inodes, quota.used_space, quota.used_inodes)
}

/// `uid:N` and `gid:N` are users and groups; all else is a path.
fn parse(owner: &[u8]) -> PyResult<QuotaOwner<&[u8]>> {
    let number = |digits: &[u8]| {
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| PyValueError::new_err("write the number of the user or group after the colon"))
    };
    Ok(match (owner.strip_prefix(b"uid:"), owner.strip_prefix(b"gid:")) {
        (Some(uid), _) => QuotaOwner::User(number(uid)?),
        (_, Some(gid)) => QuotaOwner::Group(number(gid)?),
        _ => QuotaOwner::Directory(owner),
    })
}

fn text(name: QuotaOwner<Vec<u8>>) -> Vec<u8> {
    match name {
        QuotaOwner::Directory(path) => path,
        QuotaOwner::User(uid) => format!("uid:{uid}").into_bytes(),
        QuotaOwner::Group(gid) => format!("gid:{gid}").into_bytes(),
    }
}
