//! The standard output of commands.
//!
//! What must stay true: a closed pipe, as with `head`, ends the command quietly.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

/// What a shell reports of a command that SIGPIPE ended: 128 and the signal's number.
const CLOSED_PIPE: i32 = 128 + 13;

/// Prints as [`print!`] does.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::write(::std::format_args!($($text)*)) };
}

/// Prints as [`println!`] does.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::write_line(::std::format_args!($($text)*)) };
}

/// Prints as [`eprintln!`] does. If standard error cannot be written, the work continues.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::complain(::std::format_args!($($text)*)) };
}

/// Prints what was done to standard output, unless only errors are wanted.
macro_rules! doneln {
    ($($text:tt)*) => { if !$crate::output::is_quiet() { outln!($($text)*) } };
}

/// Whether commands say only what went wrong.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, commands say only what went wrong.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether commands say only what went wrong, and not what was done.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let mut out = io::stderr().lock();
    let _ = out.write_fmt(text).and_then(|()| out.write_all(b"\n"));
}

pub(crate) fn write(text: fmt::Arguments<'_>) {
    check(io::stdout().lock().write_fmt(text));
}

pub(crate) fn write_line(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    check(out.write_fmt(text).and_then(|()| out.write_all(b"\n")));
}

/// Ends the program if its output is closed or cannot be written.
fn check(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(CLOSED_PIPE);
    }
    // Standard error may be gone, too.
    let _ = writeln!(io::stderr(), "sluice: cannot write to standard output: {error}");
    process::exit(1);
}
