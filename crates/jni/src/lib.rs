//! The native half of the Hadoop file system in `sdk/java`: the class `io.sluice.Native`.
//!
//! | module | what |
//! |---|---|
//! | `volumes` | volumes and users: opened, asked for names of users, closed |
//! | `nodes` | files and directories by their paths |
//! | `trees` | copies by reference, clones, summaries, quotas |
//! | `attributes` | modes, owners, times, extended attributes, ACLs |
//! | `files` | open files |
//! | `options` | the options of a volume, by the names of `JuiceFS`' SDK |
//! | `handles` | maps handle numbers to objects |
//! | `failure` | errors as exceptions |
//! | `bytes` | records that go through as byte arrays |
//!
//! What must stay true: Java holds handle numbers, never addresses. So a call on a closed object
//! gives an error, not a crash. No panic leaves this library.

#![allow(unreachable_pub, reason = "native methods are reached by their names")]

mod attributes;
mod bytes;
mod failure;
mod files;
mod handles;
mod nodes;
mod options;
mod trees;
mod volumes;

use failure::{Answer, Throw};
use jni::{Env, EnvUnowned, objects::JByteArray};

/// Runs a native method. Its errors and panics become exceptions.
fn call<'local, T: Default>(
    env: &mut EnvUnowned<'local>,
    run: impl FnOnce(&mut Env<'local>) -> Answer<T>,
) -> T {
    env.with_env(run).resolve::<Throw>()
}

/// A text or a path, which Java passes in UTF-8.
fn text(env: &Env<'_>, bytes: &JByteArray<'_>) -> Answer<String> {
    let bytes = env.convert_byte_array(bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
