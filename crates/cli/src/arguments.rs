//! The command line without its secrets.
//!
//! What must stay true: the process title contains no password, because every user of the machine
//! can read it. If the command line contains a password, the program stores the command line in its
//! environment, which only its owner can read. Then it executes itself again with the passwords
//! masked.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    process::Command,
};

/// Holds the real arguments, separated by newlines.
const REAL: &str = "SLUICE_ARGUMENTS";
const SECRET_FLAGS: [&str; 3] = ["--secret-key", "--session-token", "--push-auth"];
const MASK: &str = "****";

/// The program's arguments, its own name first. Begins the program again if they hold a secret.
pub(crate) fn real() -> Vec<OsString> {
    let shown: Vec<OsString> = env::args_os().collect();
    if let Some(real) = env::var_os(REAL) {
        let real = decode(&real);
        // Inherited from somebody else's call, it is not about this one.
        if mask(&real) == shown {
            return real;
        }
    }
    let masked = mask(&shown);
    if masked == shown {
        return shown;
    }
    let Ok(program) = env::current_exe() else { return shown };
    let mut command = Command::new(program);
    if let Some((name, rest)) = masked.split_first() {
        command.arg0(name).args(rest);
    }
    // It only returns if it fails; then the title tells, but the command works.
    let error = command.env(REAL, encode(&shown)).exec();
    errln!("sluice: cannot hide the password in the process title: {error}");
    shown
}

/// Gives `command` these arguments, the program's name first, with their secrets hidden.
pub(crate) fn give(command: &mut Command, arguments: &[OsString]) {
    let masked = mask(arguments);
    if let Some((name, rest)) = masked.split_first() {
        command.arg0(name).args(rest);
    }
    command.env(REAL, encode(arguments));
}

/// The arguments with their secrets replaced.
fn mask(arguments: &[OsString]) -> Vec<OsString> {
    let mut secret_next = false;
    arguments
        .iter()
        .map(|argument| {
            if std::mem::take(&mut secret_next) {
                return MASK.into();
            }
            let Some(text) = argument.to_str() else { return argument.clone() };
            secret_next = SECRET_FLAGS.contains(&text);
            match text.split_once('=') {
                Some((flag, _)) if SECRET_FLAGS.contains(&flag) => format!("{flag}={MASK}").into(),
                _ => without_password(text).into(),
            }
        })
        .collect()
}

/// A URL with its passwords masked; any other text as it is.
pub(crate) fn without_password(text: &str) -> String {
    let text = without_login(text);
    let Some((address, options)) = text.split_once('?') else { return text };
    let shown = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().ends_with("password") => format!("{name}={MASK}"),
        _ => option.to_owned(),
    });
    format!("{address}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// A URL with the password before its host masked.
fn without_login(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let before = &rest[..rest.find('?').unwrap_or(rest.len())];
    let end = match scheme.as_str() {
        // The password may hold anything if an address in parentheses comes after it.
        "mysql://" if rest.contains(")/") => rest.find(")/"),
        "mysql://" if before.contains('@') => before.rfind('/'),
        // Else it may hold neither slashes nor question marks, but whoever tries does not want it
        // shown.
        "mysql://" | "redis://" | "rediss://" | "postgres://" | "postgresql://" => {
            let at = before.rfind('@').or_else(|| rest.rfind('@')).unwrap_or(0);
            Some(rest[at..].find(['/', '?']).map_or(rest.len(), |end| at + end))
        }
        _ => before.find('/'),
    };
    let (authority, tail) = rest.split_at(end.unwrap_or(before.len()));
    match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?, host))) {
        Some(((user, password), host)) if !password.is_empty() => {
            format!("{scheme}{user}:{MASK}@{host}{tail}")
        }
        _ => text.to_owned(),
    }
}

fn encode(arguments: &[OsString]) -> OsString {
    let mut out = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 {
            out.push(b'\n');
        }
        for byte in argument.as_bytes() {
            match byte {
                b'\n' => out.extend(b"\\n"),
                b'\\' => out.extend(b"\\\\"),
                byte => out.push(*byte),
            }
        }
    }
    OsString::from_vec(out)
}

fn decode(text: &OsStr) -> Vec<OsString> {
    let one = |encoded: &[u8]| {
        let mut out = Vec::with_capacity(encoded.len());
        let mut bytes = encoded.iter();
        while let Some(byte) = bytes.next() {
            out.push(match byte {
                b'\\' => match bytes.next() {
                    Some(b'n') => b'\n',
                    _ => b'\\',
                },
                byte => *byte,
            });
        }
        OsString::from_vec(out)
    };
    text.as_bytes().split(|byte| *byte == b'\n').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn passwords_are_masked_and_nothing_else() {
        let line = all(&[
            "sluice",
            "mount",
            "redis://:p%40ss@host:6379/1?a=b",
            "/mnt/a@b:c",
            "--secret-key",
            "hush",
        ]);
        let masked =
            all(&["sluice", "mount", "redis://:****@host:6379/1?a=b", "/mnt/a@b:c", "--secret-key", "****"]);
        assert_eq!(mask(&line), masked);
        assert_eq!(mask(&masked), masked);
        assert_eq!(without_password("user:x@host/1"), "user:****@host/1");
        assert_eq!(without_password("rediss://user:a@b@host/1"), "rediss://user:****@host/1");
        assert_eq!(without_password("mysql://me:a/b?@c@(h:1)/d?e=/f"), "mysql://me:****@(h:1)/d?e=/f");
        assert_eq!(without_password("mysql://me:a@unix(/run/s)/d"), "mysql://me:****@unix(/run/s)/d");
        assert_eq!(without_password("mysql://me:a/b@host:3306/d"), "mysql://me:****@host:3306/d");
        assert_eq!(without_password("redis://:a/b@host/1?c=@"), "redis://:****@host/1?c=@");
        assert_eq!(without_password("postgres://me:a/b@host/d"), "postgres://me:****@host/d");
        assert_eq!(without_password("redis://:a?b@host/1"), "redis://:****@host/1");
        assert_eq!(without_password("mysql://me:a?b@host/d?c=1"), "mysql://me:****@host/d?c=1");
        assert_eq!(
            without_password("postgres://me:pw@host/d?sslmode=require&Password=a=b&sslpassword=c&user=d"),
            "postgres://me:****@host/d?sslmode=require&Password=****&sslpassword=****&user=d"
        );
        for plain in [
            "postgres://host/d?sslmode=require",
            "redis://user@host/1",
            "redis://host:6379",
            "sqlite3:///a:b@c/d",
            "/a/b",
        ] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn any_arguments_survive_the_environment() {
        let line = all(&["sluice", "", "a\nb", "c\\n", "\\"]);
        assert_eq!(decode(&encode(&line)), line);
    }
}
