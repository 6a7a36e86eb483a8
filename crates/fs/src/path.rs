//! Splits a path into its components.

use std::collections::VecDeque;

use sluice_types::{FsError, FsResult, Name};

/// Bytes of the longest path, with the NUL that ends it in C.
const MAX_PATH: usize = 4096;

/// One component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A name.
    Name(Name),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name that no file can have, and why.
    Bad(FsError),
}

/// A path, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedPath {
    pub(crate) steps: VecDeque<Step>,
    /// Whether a slash ends it: it names a directory.
    pub(crate) slash: bool,
    pub(crate) absolute: bool,
}

impl ParsedPath {
    /// # Errors
    /// [`FsError::NotFound`] for an empty path, [`FsError::NameTooLong`] for a long one,
    /// [`FsError::Invalid`] for one with a NUL.
    pub(crate) fn new(path: &[u8]) -> FsResult<Self> {
        match path.len() {
            0 => return Err(FsError::NotFound),
            len if len >= MAX_PATH => return Err(FsError::NameTooLong),
            _ if path.contains(&0) => return Err(FsError::Invalid),
            _ => {}
        }
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let steps = parts.map(|part| match part {
            b"." => Step::Dot,
            b".." => Step::DotDot,
            part => Name::new(part).map_or_else(Step::Bad, Step::Name),
        });
        let steps: VecDeque<Step> = steps.collect();
        let slash = path.ends_with(b"/") && !steps.is_empty();
        Ok(Self { steps, slash, absolute: path.starts_with(b"/") })
    }
}

/// The directory of a path as a path, and its last name; `None` if it does not end in a name.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = &path[begin..end];
    let dir = if begin == 0 { b"/" } else { &path[..begin] };
    (name != b"." && name != b"..").then_some((dir, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart() {
        let name = |name: &str| Step::Name(Name::new(name.as_bytes()).expect("valid"));
        let steps = |path: &str| ParsedPath::new(path.as_bytes());
        let expected =
            |steps: Vec<Step>, slash, absolute| Ok(ParsedPath { steps: steps.into(), slash, absolute });
        assert_eq!(steps("/"), expected(vec![], false, true));
        assert_eq!(steps("a//b/"), expected(vec![name("a"), name("b")], true, false));
        assert_eq!(steps("/./a/.."), expected(vec![Step::Dot, name("a"), Step::DotDot], false, true));
        assert_eq!(steps(&"n".repeat(256)), expected(vec![Step::Bad(FsError::NameTooLong)], false, false));
        assert_eq!(steps(""), Err(FsError::NotFound));
        assert_eq!(steps(&"a/".repeat(2048)), Err(FsError::NameTooLong));
        assert_eq!(steps("a\0b"), Err(FsError::Invalid));
    }

    #[test]
    fn a_directory_is_what_comes_before_the_name() {
        let split = |path: &'static str| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            split(path.as_bytes()).map(|(dir, name)| (text(dir), text(name)))
        };
        let some = |dir: &str, name: &str| Some((dir.to_owned(), name.to_owned()));
        assert_eq!(split("/a/b//"), some("/a/", "b"));
        assert_eq!(split("a"), some("/", "a"));
        assert_eq!(split("/a"), some("/", "a"));
        assert_eq!((split("/"), split("a/.."), split("")), (None, None, None));
    }
}
