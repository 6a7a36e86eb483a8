//! Quotas. The owner of a quota is a text: the path of a directory, `uid:N` or `gid:N`.

use std::ffi::c_char;

use sluice_fs::{QuotaLimits, QuotaOwner};

use crate::{
    border::{Failure, Outcome, invalid, number, status},
    handles,
    memory::{put, put_bytes, text},
    structs::SluiceQuota,
};

/// For sluice_set_quota: leave the limit as it is.
pub const SLUICE_KEEP_LIMIT: u64 = 0xFFFF_FFFF_FFFF_FFFF;

/// The quota of a directory (a path), of a user (`uid:N`) or of a group (`gid:N`): its limits and
/// what is used. A directory counts what is below it, not itself. `-ENODATA` if there is no quota.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_quota(volume: i64, owner: *const c_char, quota: *mut SluiceQuota) -> i32 {
    status(|| {
        let found = handles::view(volume)?.fs.quota(parse(owner)?)?;
        let found = found.ok_or_else(|| Failure::new(libc::ENODATA, "there is no such quota"))?;
        put(quota, found.into())
    })
}

/// The owners of all quotas that have a limit, as sluice_quota takes them, each with a NUL at its
/// end. Returns the number of bytes; `-ERANGE` if they do not fit. With `size` 0 only the number is
/// returned. For superusers.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_quota_owners(volume: i64, buffer: *mut c_char, size: usize) -> i64 {
    number(|| {
        let mut all = Vec::new();
        for (owner, _) in handles::view(volume)?.fs.quotas()? {
            all.extend(owner.into_text());
            all.push(0);
        }
        put_bytes(buffer.cast(), size, &all)
    })
}

/// Sets the limits of a quota: bytes and inodes. 0 means no limit; `SLUICE_KEEP_LIMIT` leaves one
/// as it is. The first limits of a directory count what is below it: node by node if `strict` is
/// not 0, else by the sums that the volume keeps of each directory. If other clients have the
/// volume open, this takes two of their heartbeats. For superusers.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_set_quota(
    volume: i64,
    owner: *const c_char,
    space: u64,
    inodes: u64,
    strict: i32,
) -> i32 {
    status(|| {
        let limit = |limit: u64| (limit != SLUICE_KEEP_LIMIT).then_some(limit);
        let limits = QuotaLimits { space: limit(space), inodes: limit(inodes) };
        handles::view(volume)?.fs.set_quota(parse(owner)?, limits, strict != 0)?;
        Ok(())
    })
}

/// Removes the limits of a quota. Returns 1, or 0 if there were none. For superusers.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_remove_quota(volume: i64, owner: *const c_char) -> i32 {
    number(|| Ok(handles::view(volume)?.fs.remove_quota(parse(owner)?)?.into())) as i32
}

/// Counts what a quota limits, as sluice_set_quota does: `counted` gets the limits and what was
/// counted. If `repair` is not 0, a quota whose record says something else is corrected. Returns 1
/// if it says something else, or 0. For superusers.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_check_quota(
    volume: i64,
    owner: *const c_char,
    repair: i32,
    strict: i32,
    counted: *mut SluiceQuota,
) -> i32 {
    number(|| {
        let usage = handles::view(volume)?.fs.check_quota(parse(owner)?, repair != 0, strict != 0)?;
        let mut found = SluiceQuota::from(usage.stored.unwrap_or_default());
        (found.used_space, found.used_inodes) = usage.counted;
        put(counted, found)?;
        Ok((usage.difference() != (0, 0)).into())
    }) as i32
}

fn parse<'a>(owner: *const c_char) -> Outcome<QuotaOwner<&'a [u8]>> {
    QuotaOwner::parse(text(owner)?)
        .map_err(|_| invalid("write the number of the user or group after the colon"))
}
