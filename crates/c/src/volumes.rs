//! Volumes: open, users, close.

use std::{
    ffi::{CStr, c_char},
    sync::Arc,
};

use sluice_fs::{Superusers, User};

use crate::{
    border::{last_message, number, status},
    handles::{self, Handle, View},
    memory::{put, put_bytes, utf8, values},
    options,
    structs::SluiceStatvfs,
};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The message of the last failed call of this thread: what failed, for what, and what to do.
/// Returns the number of bytes without the NUL that ends them; a message that is too long for the
/// buffer is cut.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_last_error(buffer: *mut c_char, size: usize) -> i64 {
    let message = last_message();
    if size == 0 {
        return message.len() as i64;
    }
    let kept = message.floor_char_boundary(message.len().min(size - 1));
    let mut bytes = message.as_bytes()[..kept].to_vec();
    bytes.push(0);
    match put_bytes(buffer.cast(), size, &bytes) {
        Ok(_) => message.len() as i64,
        Err(failure) => -i64::from(failure.errno),
    }
}

/// Opens a volume and returns its handle. `url` names its metadata, as for the command `sluice`.
///
/// `options` is NULL, or a JSON object, or lines of `name=value`. An unknown name is an error.
/// These options of `sluice mount` exist: `bucket`, `buffer-size`, `cache-dir`, `cache-group` (only
/// taking), `cache-size`, `heartbeat`, `max-downloads`, `max-readahead`, `max-uploads`, `no-bgjob`,
/// `open-cache`, `prefetch`, `read-only`, `subdir` and `writeback`. `purpose` is what other clients
/// see in place of a mount point. `uid`, `gid`, `groups`, `superuser` and `umask`, or `user` by
/// name, say who calls; by default it is the user of the process, and root is a superuser.
/// `superuser-name` and `supergroup` say which names are superusers. `passwd-file` and `group-file`
/// take the place of `/etc/passwd` and `/etc/group`. A name in capital letters is an environment
/// variable that the command line would read, such as `META_PASSWORD`.
///
/// Handles that one process opened with the same url and options share connections and memory.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_open(url: *const c_char, options: *const c_char) -> i64 {
    number(|| {
        let wanted = options::parse(utf8(options)?)?;
        let variables = |name: &str| wanted.variables.get(name).cloned();
        let volume = sluice_open::volume(utf8(url)?, &wanted.options, &variables)?;
        let view = View { fs: volume.fs(&wanted.user), accounts: Arc::new(wanted.accounts) };
        Ok(handles::add(Handle::View(Arc::new(view))))
    })
}

/// Returns a second handle of the same volume, whose calls run as another user. Close it
/// separately. `groups` are `count` further groups. Nothing authenticates the user.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_as_user(
    volume: i64,
    uid: u32,
    gid: u32,
    groups: *const u32,
    count: usize,
    superuser: i32,
    umask: u32,
) -> i64 {
    number(|| {
        let groups = values(groups, count)?.to_vec();
        let user = User { groups, superuser: superuser != 0, ..User::new(uid, gid) }
            .with_umask((umask & 0o777) as u16);
        view_as(volume, &user)
    })
}

/// Like sluice_as_user, with the name of the user, which also decides the groups. `superuser` is
/// the name of the user who is a superuser, `supergroup` that of the group whose members are; each
/// may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_as_name(
    volume: i64,
    name: *const c_char,
    superuser: *const c_char,
    supergroup: *const c_char,
) -> i64 {
    number(|| {
        let superusers = Superusers { user: utf8(superuser)?.into(), group: utf8(supergroup)?.into() };
        let user = options::by_name(&handles::view(volume)?.accounts, utf8(name)?, &superusers)?;
        view_as(volume, &user)
    })
}

fn view_as(volume: i64, user: &User) -> crate::border::Outcome<u64> {
    let view = handles::view(volume)?;
    let accounts = Arc::clone(&view.accounts);
    Ok(handles::add(Handle::View(Arc::new(View { fs: view.fs.volume().fs(user), accounts }))))
}

/// Stores everything that was written to open files of the volume.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_flush_all(volume: i64) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.volume().flush()?))
}

/// Closes a handle of a volume. The volume itself is closed with the last of its handles and files.
/// Then everything that was written is stored.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_close(volume: i64) -> i32 {
    status(|| {
        let view = handles::take_view(volume)?;
        let stored = view.fs.volume().flush();
        drop(view);
        Ok(stored?)
    })
}

/// Used and total size of the volume.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_statvfs(volume: i64, sizes: *mut SluiceStatvfs) -> i32 {
    status(|| put(sizes, handles::view(volume)?.fs.statfs().into()))
}
