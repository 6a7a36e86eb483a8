//! Attributes: stat, permissions, owners, times.

use std::ffi::c_char;

use sluice_fs::{Access, SetTime, Time};

use crate::{
    border::{Outcome, invalid, status},
    handles,
    memory::{put, text, values},
    structs::{SluiceStat, SluiceTime},
};

/// For the nanoseconds of a time to set: set the time of the call.
pub const SLUICE_TIME_NOW: u32 = 0xFFFF_FFFF;
/// For the nanoseconds of a time to set: leave this time as it is.
pub const SLUICE_TIME_OMIT: u32 = 0xFFFF_FFFE;
/// For sluice_chown: leave the owner or the group as it is.
pub const SLUICE_KEEP_ID: u32 = 0xFFFF_FFFF;

/// Attributes of what a path leads to.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_stat(volume: i64, path: *const c_char, stat: *mut SluiceStat) -> i32 {
    status(|| put(stat, handles::view(volume)?.fs.stat(text(path)?)?.into()))
}

/// As sluice_stat, of a symbolic link itself.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_lstat(volume: i64, path: *const c_char, stat: *mut SluiceStat) -> i32 {
    status(|| put(stat, handles::view(volume)?.fs.lstat(text(path)?)?.into()))
}

/// Checks permissions as access(2) does: `mode` is 0 or of 4 (read), 2 (write), 1 (execute or
/// search).
#[unsafe(no_mangle)]
pub extern "C" fn sluice_access(volume: i64, path: *const c_char, mode: i32) -> i32 {
    status(|| {
        if mode & !7 != 0 {
            return Err(invalid(format!("a mode of access that has no meaning: {mode}")));
        }
        Ok(handles::view(volume)?.fs.access(text(path)?, Access(mode as u8))?)
    })
}

/// Sets the permission bits.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_chmod(volume: i64, path: *const c_char, mode: u32) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.set_mode(text(path)?, (mode & 0o7777) as u16)?))
}

/// Sets the owner and the group; `SLUICE_KEEP_ID` leaves one as it is. A symbolic link at the end
/// of the path is followed unless `follow` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_chown(volume: i64, path: *const c_char, uid: u32, gid: u32, follow: i32) -> i32 {
    status(|| {
        let given = |id: u32| (id != SLUICE_KEEP_ID).then_some(id);
        Ok(handles::view(volume)?.fs.set_owner(text(path)?, given(uid), given(gid), follow != 0)?)
    })
}

/// Sets the times of the last access (`times[0]`) and of the last change (`times[1]`). A symbolic
/// link at the end of the path is followed unless `follow` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_utimens(
    volume: i64,
    path: *const c_char,
    times: *const SluiceTime,
    follow: i32,
) -> i32 {
    status(|| {
        let times = values(times, 2)?;
        let (atime, mtime) = (set_time(times[0])?, set_time(times[1])?);
        Ok(handles::view(volume)?.fs.set_times(text(path)?, atime, mtime, follow != 0)?)
    })
}

fn set_time(time: SluiceTime) -> Outcome<Option<SetTime>> {
    match time.nsec {
        SLUICE_TIME_OMIT => Ok(None),
        SLUICE_TIME_NOW => Ok(Some(SetTime::Now)),
        nsec if nsec < 1_000_000_000 => Ok(Some(SetTime::At(Time { sec: time.sec, nsec }))),
        nsec => Err(invalid(format!("nanoseconds of a time: {nsec}"))),
    }
}
