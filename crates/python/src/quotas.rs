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
        Ok(quotas.into_iter().map(|(name, quota)| (name.into_text(), fields(quota))).collect())
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

fn parse(owner: &[u8]) -> PyResult<QuotaOwner<&[u8]>> {
    QuotaOwner::parse(owner)
        .map_err(|_| PyValueError::new_err("write the number of the user or group after the colon"))
}
