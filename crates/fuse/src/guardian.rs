//! A small process that outlives the server, to clear the mount point when the server dies without doing so.
//!
//! What must stay true: between `fork` and its end the child only makes system calls, for it was forked from a
//! process that may have threads; all it needs is prepared before. It unmounts nothing that still answers.

use std::{
    ffi::{CStr, CString, c_char},
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
};

use rustix::pipe::{PipeFlags, pipe_with};

/// The guardian of one mount point. It watches a pipe that ends when this process does.
#[derive(Debug)]
pub(crate) struct Guardian {
    pipe: OwnedFd,
    pid: libc::pid_t,
}

impl Guardian {
    /// Starts watching over `mountpoint`, an absolute path, best before it is mounted. `helper` is the program that
    /// unmounts for users who may not.
    pub(crate) fn start(mountpoint: &Path, helper: Option<&Path>) -> io::Result<Self> {
        let mountpoint = CString::new(mountpoint.as_os_str().as_bytes())?;
        let helper = helper.map(|path| CString::new(path.as_os_str().as_bytes())).transpose()?;
        let arguments = [c"fusermount3", c"-u", c"-z", c"-q", c"--", &mountpoint];
        let mut argv: Vec<*const c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        argv.push(ptr::null());
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        // Nothing that the child calls allocates or locks: see the module.
        #[allow(unsafe_code)]
        // SAFETY: fork itself has no precondition; the child runs `watch`, which keeps to system calls and never
        // returns.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(theirs.as_raw_fd(), &mountpoint, helper.as_deref(), &argv),
            pid => Ok(Self { pipe: ours, pid }),
        }
    }
}

impl Drop for Guardian {
    /// The mount point is clean: the guardian goes.
    fn drop(&mut self) {
        let told = rustix::io::write(&self.pipe, &[1]);
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return };
        if told.is_ok() {
            // It may have been reaped by somebody who waits for all children; that is as well.
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
    }
}

/// The child's life.
#[allow(unsafe_code)]
fn watch(pipe: RawFd, mountpoint: &CStr, helper: Option<&CStr>, argv: &[*const c_char]) -> ! {
    // SAFETY: only system calls, on memory that lives until the process ends: C strings and a null-terminated array
    // made before the fork, and locals.
    unsafe {
        detach(pipe);
        let mut byte = 0_u8;
        loop {
            match libc::read(0, (&raw mut byte).cast(), 1) {
                0 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(0),
            }
        }
        // The server is gone, and with it the connection; a request that came in between is aborted first.
        for _ in 0..100 {
            let mut stat: libc::statfs = std::mem::zeroed();
            if libc::statfs(mountpoint.as_ptr(), &raw mut stat) == 0 {
                break;
            }
            match *libc::__errno_location() {
                libc::ENOTCONN => {
                    let lazily = libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW;
                    if libc::umount2(mountpoint.as_ptr(), lazily) != 0
                        && let Some(helper) = helper
                    {
                        libc::execv(helper.as_ptr(), argv.as_ptr());
                    }
                    break;
                }
                libc::ECONNABORTED | libc::EINTR => {}
                _ => break,
            }
        }
        libc::_exit(0)
    }
}

/// Makes the child nobody's business: its own session, no signals, no descriptors but the pipe as number 0.
///
/// # Safety
/// Only in a forked child that never returns to Rust code which owns descriptors.
#[allow(unsafe_code)]
unsafe fn detach(pipe: RawFd) {
    // SAFETY: system calls on locals and constants; the descriptors closed here are the child's copies.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"fuse-guardian".as_ptr());
        libc::chdir(c"/".as_ptr());
        libc::dup2(pipe, 0);
        if libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) != 0 {
            for fd in 1..1024 {
                libc::close(fd);
            }
        }
        // What the helper says goes nowhere, and not into a file that happens to be number 2.
        libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::dup(1);
    }
}
