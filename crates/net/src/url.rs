//! The parts of a URL, and their values: escapes, numbers, durations, booleans.
//!
//! What must stay true: a value that cannot be read is an error that names its option, and never a
//! silent default.

use std::{fmt, ops::Deref, str::FromStr, time::Duration};

use sluice_types::parse_duration;

/// A password. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The parts of a URL `SCHEME://USER:PASSWORD@HOSTS/PATH?OPTIONS`.
pub struct Url<'u> {
    /// The part before `://`.
    pub scheme: &'u str,
    /// User name without escapes; `None` if it is empty.
    pub user: Option<String>,
    /// Password without escapes; `None` if it is empty.
    pub password: Option<Secret>,
    /// Hosts, with escapes.
    pub hosts: &'u str,
    /// The path, from the slash on, with escapes.
    pub path: &'u str,
    /// The part after the question mark, with escapes: see [`options`].
    pub options: &'u str,
}

impl<'u> Url<'u> {
    /// Finds the parts. No part of the password is in the message of an error.
    ///
    /// # Errors
    /// A message, if there is no scheme, if a user's name or password has a slash or a question
    /// mark, or is not UTF-8.
    pub fn parse(text: &'u str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("a URL begins with SCHEME://")?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let first = options.split('=').next().unwrap_or_default();
        // After `unix://` comes the path of a socket, which may have one.
        if scheme != "unix" && (path.contains('@') || first.contains('@')) {
            // A message with the part before it would show the beginning of the password.
            return Err("a / in a user's name or a password is written as %2F, a ? as %3F".into());
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let some = |text: &str| decoded(text).map(|text| Some(text).filter(|text| !text.is_empty()));
        let password = some(password)?.map(Secret);
        Ok(Self { scheme, user: some(user)?, password, hosts, path, options })
    }
}

/// Undoes `%XX`; a percent sign before anything else stands for itself.
///
/// # Errors
/// A message, if the result is not UTF-8.
pub fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) if *byte == b'%' => {
                bytes.push(value);
                rest = &tail[2..];
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the URL holds escapes that are no UTF-8".into())
}

/// The options after the question mark, in their order, without their escapes.
///
/// # Errors
/// A message, if a value is not UTF-8.
pub fn options(query: &str) -> Result<Vec<(&str, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((name, decoded(value)?))
        })
        .collect()
}

/// The error for an unknown option. It names the known ones.
pub fn unknown(name: &str, known: &str) -> String {
    format!("the URL has no option \"{name}\"; there are {known}")
}

/// Takes an option without effect, if it is one of `unused`, a list with commas.
///
/// # Errors
/// As [`unknown`], if it is none of them.
pub fn unused(name: &str, unused: &str, known: &str) -> Result<(), String> {
    if !unused.split(", ").any(|unused| unused == name) {
        return Err(unknown(name, known));
    }
    tracing::info!(name, "an option of the URL has no effect");
    Ok(())
}

/// A number.
///
/// # Errors
/// A message, if it is none, or out of range.
pub fn number<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name}={text} is no number"))
}

/// A boolean; an option without a value is true.
///
/// # Errors
/// A message, if it is neither.
pub fn boolean(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{name}={text} is neither true nor false")),
    }
}

/// The value of one of these words.
///
/// # Errors
/// A message that names them, if it is none.
pub fn one_of<T: Copy>(name: &str, text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{name}={text} is none of {}", words.join(", "))
    })
}

/// Reads `30s`, `500ms`, `1m30s`, or a plain number of seconds.
///
/// # Errors
/// A message, if it is none of these.
pub fn duration(name: &str, text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("{name}={text} is no duration; write 30s or 500ms"))
}

/// A duration greater than zero.
///
/// # Errors
/// A message, if it is no duration, or 0.
pub fn deadline(name: &str, text: &str) -> Result<Duration, String> {
    let time = duration(name, text)?;
    if time.is_zero() { Err(format!("{name} may not be 0: every wait has a deadline")) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_are_refused_are_named() {
        assert_eq!(duration("d", "1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("d", "soon").is_err_and(|message| message.starts_with("d=soon")));
        assert!(deadline("d", "0").is_err());
    }

    #[test]
    fn escapes_are_undone_and_other_percent_signs_stay() {
        assert_eq!(decoded("p%40s%2Fs").as_deref(), Ok("p@s/s"));
        assert_eq!(decoded("100%").as_deref(), Ok("100%"));
        assert_eq!(decoded("%zz%4").as_deref(), Ok("%zz%4"));
        assert!(decoded("%ff").is_err());
        let pairs = options("a=1&&b=x%26y&c").expect("valid");
        assert_eq!(pairs, [("a", "1".to_owned()), ("b", "x&y".into()), ("c", String::new())]);
    }

    #[test]
    fn words_that_are_none_are_errors_that_name_what_there_is() {
        let words = [("on", 1), ("off", 2)];
        assert_eq!(one_of("w", "off", &words), Ok(2));
        assert_eq!(one_of("w", "of", &words), Err("w=of is none of on, off".into()));
    }

    #[test]
    fn the_parts_of_a_url_are_found_and_none_of_its_password_is_shown() {
        let url = Url::parse("a://me:p%40s@h1,h2:5/x/y?b=1&c=@").expect("valid");
        assert_eq!((url.scheme, url.hosts, url.path, url.options), ("a", "h1,h2:5", "/x/y", "b=1&c=@"));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@s")));
        let url = Url::parse("unix://:pw@/run/a@b.sock").expect("valid");
        assert_eq!((url.user, url.password.as_deref(), url.path), (None, Some("pw"), "/run/a@b.sock"));
        for wrong in ["me:secret@h", "a://me:sec/ret@h", "a://me:sec?ret@h", "a://me:secret%ff@h"] {
            let error = Url::parse(wrong).err().expect(wrong);
            assert!(!error.contains("sec"), "{error}");
        }
    }

    #[test]
    fn numbers_and_booleans_that_are_none_are_errors() {
        assert_eq!(number::<u16>("n", "7"), Ok(7));
        assert!(number::<u16>("n", "70000").is_err());
        assert_eq!((boolean("b", ""), boolean("b", "0")), (Ok(true), Ok(false)));
        assert!(boolean("b", "maybe").is_err());
    }
}
