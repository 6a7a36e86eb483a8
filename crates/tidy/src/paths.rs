//! The names that a file of Rust uses, by their paths. It distinguishes only words and punctuation,
//! which is enough for the code of this workspace.

use std::collections::BTreeSet;

use crate::{Source, sources::code};

/// One name of a `use`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The whole path.
    pub(crate) path: Vec<String>,
    /// What it is called in the file; `*` for all there is.
    pub(crate) name: String,
    /// Whether others see it.
    pub(crate) public: bool,
}

/// What a file names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) imports: Vec<Import>,
    /// Paths of two words at least, outside of `use`.
    pub(crate) paths: Vec<Vec<String>>,
    /// All words outside of `use` and `mod …;`.
    pub(crate) words: BTreeSet<String>,
}

/// What the code of a file names, its tests left out.
pub(crate) fn names(source: &Source) -> Names {
    let lines = source.text.lines().take(source.tests_begin());
    let tokens: Vec<String> = lines.flat_map(|line| tokens(&without_texts(code(line)))).collect();
    let mut names = Names::default();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let end = tokens[at..].iter().position(|token| token == ";").map_or(tokens.len(), |end| at + end);
        if token == "use" {
            // `pub use` and `pub(crate) use`.
            let before = &tokens[at.saturating_sub(4)..at];
            let public = before.last().is_some_and(|token| token == "pub" || token == ")");
            tree(&tokens[at + 1..end], &[], public, &mut names.imports);
            at = end;
        } else if token == "mod" && end == at + 2 {
            at = end;
        } else if is_word(token) {
            let mut path = vec![token.to_owned()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && tokens.get(at + 2).is_some_and(|next| is_word(next))
            {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            names.words.extend(path.iter().cloned());
            if path.len() > 1 {
                names.paths.push(path);
            }
        }
        at += 1;
    }
    names
}

/// Reads what comes after `use`, or in one of its braces.
fn tree(tokens: &[String], above: &[String], public: bool, into: &mut Vec<Import>) {
    let (mut depth, mut begin) = (0, 0);
    for at in 0..=tokens.len() {
        match tokens.get(at).map(String::as_str) {
            Some("{") => depth += 1,
            Some("}") => depth -= 1,
            Some(",") if depth == 0 => {
                branch(&tokens[begin..at], above, public, into);
                begin = at + 1;
            }
            None => branch(&tokens[begin..], above, public, into),
            _ => {}
        }
    }
}

/// One path of a `use`, up to its braces.
fn branch(tokens: &[String], above: &[String], public: bool, into: &mut Vec<Import>) {
    // Behind the last comma.
    if tokens.is_empty() {
        return;
    }
    let mut path = above.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "::" => {}
            "{" => return tree(&tokens[at + 1..tokens.len() - 1], &path, public, into),
            "*" => return into.push(Import { path, name: "*".into(), public }),
            "as" => {
                let name = tokens.last().cloned().unwrap_or_default();
                return into.push(Import { path, name, public });
            }
            // `a::{self, B}` names `a`.
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
    }
    if let Some(name) = path.last().cloned() {
        into.push(Import { path, name, public });
    }
}

/// A line without what stands between quotes. A text that goes on in the next line stays.
fn without_texts(line: &str) -> String {
    let line = line.replace("'\"'", "").replace("\\\"", "");
    if line.matches('"').count() % 2 == 1 {
        return line;
    }
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::`, and every other sign by itself.
fn tokens(line: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let length = if part(first) {
            rest.find(|c| !part(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_read_to_its_leaves() {
        let text = "pub(crate) use a::{self, b::{C, D as E,}, *,};\nuse f;\n";
        let found = names(&Source::new("x.rs", text)).imports;
        let found: Vec<String> = found
            .iter()
            .map(|import| format!("{} {} {}", import.path.join("::"), import.name, import.public))
            .collect();
        assert_eq!(found, ["a a true", "a::b::C C true", "a::b::D E true", "a * true", "f f false"]);
    }

    #[test]
    fn paths_and_words_are_those_of_code() {
        let names = names(&Source::new("x.rs", "mod z;\nfn f() { g(h::i()); j(\"k::l\") } // m::n\n"));
        assert_eq!(names.paths, [["h", "i"]]);
        assert!(names.words.contains("g") && !names.words.contains("z") && !names.words.contains("k"));
    }
}
