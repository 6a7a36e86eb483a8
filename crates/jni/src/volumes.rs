//! Volumes, and the users in them.
//!
//! What must stay true: `FileSystem` objects with the same volume and options share one open
//! volume, also if their users differ. A user name has the same number in all of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Once, Weak},
};

use jni::{
    EnvUnowned, jni_mangle,
    objects::{JByteArray, JClass},
    sys::{jboolean, jint, jlong},
};
use parking_lot::Mutex;
use sluice_fs::{Accounts, Fs, Identities, Superusers};
use sluice_open::{Variables, VolumeOptions};

use crate::{
    bytes::{Reader, put_bytes},
    call,
    failure::{Answer, Failure},
    handles::Handles,
    options, text,
};

/// A file system of Java: a volume as one user sees it.
pub(crate) struct Session {
    pub(crate) fs: Fs,
    pub(crate) identities: Arc<Identities>,
    superuser: bool,
}

pub(crate) static SESSIONS: Handles<Session> = Handles::new("file system");

/// Identities by the volume and the lists that they come from, so that users of one volume know
/// each other's names.
static IDENTITIES: Mutex<BTreeMap<String, Weak<Identities>>> = Mutex::new(BTreeMap::new());

/// What Java says of a user.
struct UserRequest<'r> {
    name: &'r str,
    groups: Vec<&'r str>,
    superusers: Superusers,
    users: Option<&'r str>,
    members: Option<&'r str>,
}

/// `long open(byte[] url, byte[] options, byte[] user)`: a volume as a user sees it. The options
/// are names and values in turn; a name after a dollar sign is a variable of the environment. The
/// user is a name, groups with commas between them, the
/// superuser, the supergroup, and, if there are, the lists of users and of groups.
#[jni_mangle("io.sluice.Native")]
pub fn open<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    url: JByteArray<'local>,
    options: JByteArray<'local>,
    user: JByteArray<'local>,
) -> jlong {
    call(&mut env, |env| {
        let (url, options) = (text(env, &url)?, env.convert_byte_array(&options)?);
        let user = env.convert_byte_array(&user)?;
        let texts: Vec<&str> = texts(&options)?;
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        log(pairs.clone().any(|pair| pair == ("debug", "true")));
        let texts = self::texts(&user)?;
        let [name, groups, superuser, supergroup, lists @ ..] = &texts[..] else {
            return Err(Failure::new(libc::EINVAL, "a user is missing"));
        };
        let list = |at: usize| lists.get(at).copied().filter(|list| !list.is_empty());
        let user = UserRequest {
            name,
            groups: groups.split(',').collect(),
            superusers: Superusers { user: (*superuser).into(), group: (*supergroup).into() },
            users: list(0),
            members: list(1),
        };
        let variable = |name: &str| {
            let mut found = pairs.clone().filter(|(key, _)| key.strip_prefix('$') == Some(name));
            found.next().map(|(_, value)| value.to_owned())
        };
        session(&url, &options::parse(pairs.clone())?, &variable, &user)
    })
}

fn session(
    url: &str,
    options: &VolumeOptions,
    variables: Variables<'_>,
    user: &UserRequest<'_>,
) -> Answer<i64> {
    let volume = sluice_open::volume(url, options, variables)?;
    let name = volume.name();
    let identities = shared_identities(&name, user)?;
    let who = identities.user(user.name, &user.groups, 0);
    Ok(SESSIONS.add(Session { fs: volume.fs(&who), identities, superuser: who.superuser }))
}

/// The identities that all file systems of a volume with the same lists share.
fn shared_identities(volume: &str, user: &UserRequest<'_>) -> Answer<Arc<Identities>> {
    let key = format!("{volume:?} {:?} {:?} {:?}", user.superusers, user.users, user.members);
    let mut shared = IDENTITIES.lock();
    shared.retain(|_, identities| identities.strong_count() > 0);
    if let Some(identities) = shared.get(&key).and_then(Weak::upgrade) {
        return Ok(identities);
    }
    let accounts = Accounts::system().map_err(|error| Failure::new(libc::EIO, error.to_string()))?;
    let superusers = user.superusers.clone();
    let made = Arc::new(Identities::new(volume, superusers, &accounts, user.users, user.members));
    shared.insert(key, Arc::downgrade(&made));
    Ok(made)
}

/// The texts of a record.
fn texts(record: &[u8]) -> Answer<Vec<&str>> {
    let wrong = |_| Failure::new(libc::EINVAL, "a text from Java is not UTF-8");
    Reader(record).map(|bytes| std::str::from_utf8(bytes).map_err(wrong)).collect()
}

/// Messages go to standard error, as those of the JVM's own libraries do. The first volume says how
/// many.
fn log(debug: bool) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = if debug { "debug" } else { "warn" };
        // Somebody else's subscriber is as good.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .try_init();
    });
}

/// `void close(long session)`: the last one of a volume closes it. Open files keep it open.
#[jni_mangle("io.sluice.Native")]
pub fn close<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, session: jlong) {
    call(&mut env, |_| {
        drop(SESSIONS.remove(session));
        Ok(())
    });
}

/// `boolean isSuperuser(long session)`
#[jni_mangle("io.sluice.Native")]
pub fn is_superuser<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, session: jlong) -> jboolean {
    call(&mut env, |_| Ok(SESSIONS.get(session)?.superuser))
}

/// `byte[] nameOf(long session, boolean group, int id)`: the name of a user or a group.
#[jni_mangle("io.sluice.Native")]
pub fn name_of<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    group: jboolean,
    id: jint,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let session = SESSIONS.get(session)?;
        let id = id as u32;
        let name = if group { session.identities.group_name(id) } else { session.identities.user_name(id) };
        Ok(env.byte_array_from_slice(name.as_bytes())?)
    })
}

/// `int idOf(long session, boolean group, byte[] name)`: the number of a user or a group.
#[jni_mangle("io.sluice.Native")]
pub fn id_of<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    group: jboolean,
    name: JByteArray<'local>,
) -> jint {
    call(&mut env, |env| {
        let (session, name) = (SESSIONS.get(session)?, text(env, &name)?);
        let id = if group { session.identities.gid(&name) } else { session.identities.uid(&name) };
        Ok(id as jint)
    })
}

/// `byte[] volume(long session)`: name of the volume; then its bytes in all, those in use, inodes
/// in use.
#[jni_mangle("io.sluice.Native")]
pub fn volume<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, session: jlong) -> JByteArray<'local> {
    call(&mut env, |env| {
        let session = SESSIONS.get(session)?;
        let size = session.fs.statfs();
        let mut record = Vec::new();
        put_bytes(&mut record, session.fs.volume().name().as_bytes());
        for number in [size.total, size.used, size.inodes] {
            record.extend(number.to_be_bytes());
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}
