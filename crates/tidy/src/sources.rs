//! The files of the workspace as text. A line number given here is that of the file on disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What is no source: built, fetched or kept by git.
const SKIPPED: [&str; 3] = ["target", ".git", "tmp"];

/// Crates that exist for tests only; nothing that ships depends on them.
pub(crate) const DEV_CRATES: [&str; 6] = ["testkit", "tidy", "e2e", "faults", "simulate", "farm"];

/// One text file of the repository.
#[derive(Debug, Clone)]
pub struct Source {
    /// The path from the repository's root, with `/`.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

impl Source {
    /// A source from memory.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// The crate's folder under `crates/`, if it is in one.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the whole file is for tests.
    pub fn is_test(&self) -> bool {
        let stem = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.contains("/examples/")
            || stem == "tests.rs"
            || stem.ends_with("_tests.rs")
            || self.crate_folder().is_some_and(|folder| DEV_CRATES.contains(&folder))
    }

    /// The lines that ship, numbered from 1: those before the first `#[cfg(test)]` that opens a
    /// module of tests.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = if self.is_test() { 0 } else { self.tests_begin() };
        self.text.lines().enumerate().take(end).map(|(index, line)| (index + 1, line))
    }

    /// The lines of tests, numbered from 1.
    pub fn tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let begin = if self.is_test() { 0 } else { self.tests_begin() };
        self.text.lines().enumerate().skip(begin).map(|(index, line)| (index + 1, line))
    }

    /// The lines before the tests, whoever the file is for.
    pub(crate) fn tests_begin(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        (0..lines.len())
            .find(|&at| {
                lines[at] == "#[cfg(test)]"
                    // Whatever else is attached comes between; `mod tests;` names a file of its
                    // own.
                    && lines[at + 1..]
                        .iter()
                        .find(|line| !line.starts_with("#["))
                        .is_some_and(|line| {
                            line.trim_start_matches("pub(crate) ").starts_with("mod ") && line.ends_with('{')
                        })
            })
            .unwrap_or(lines.len())
    }
}

/// Code without its comment, for rules that look for words. Strings stay: a word that must not be
/// used is not needed in one either.
pub(crate) fn code(line: &str) -> &str {
    let line = line.trim_start();
    if line.starts_with("//") {
        return "";
    }
    // `://` opens no comment.
    match line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':')) {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

/// Whether `word` stands in `line` by itself.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part)
            && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Every text file of the repository that this crate is in.
pub fn workspace() -> io::Result<Vec<Source>> {
    // Asked for as it runs: a build folder may be shared by several clones.
    let tidy = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = PathBuf::from(tidy).join("../..").canonicalize()?;
    let mut sources = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let meta = fs::symlink_metadata(&path)?;
            // In a worktree `.git` is a file.
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file()
                && let Ok(text) = String::from_utf8(fs::read(&path)?)
                && let Ok(path) = path.strip_prefix(&root)
            {
                sources.push(Source { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}
