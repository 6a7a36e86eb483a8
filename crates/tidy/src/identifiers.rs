//! Names in the code are words of the field.

use crate::{Fault, Source, sources::code};

/// Words that no name in the code has, and what is said instead.
const FORBIDDEN: &[(&str, &str)] =
    &[("dispel", "recheck"), ("herd", "commit_delay"), ("insist", "retry"), ("recall", "record_cache")];

/// No name in the code has a word that its readers do not know.
pub fn identifiers(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (index, line) in source.text.lines().enumerate() {
            let words = words(code(line));
            for (word, instead) in
                FORBIDDEN.iter().filter(|(word, _)| words.iter().any(|other| other == word))
            {
                faults.push(format!("{}:{}: `{word}` in a name: say {instead}", source.path, index + 1));
            }
        }
    }
    faults
}

/// The words of the names in a line, in small letters. What stands between quotes is no name.
fn words(code: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in code.split('"').step_by(2).flat_map(|part| part.chars().chain([' '])) {
        if !letter.is_alphabetic() || letter.is_uppercase() && !before.is_uppercase() {
            words.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_names_of_every_form() {
        let found = |text: &str| identifiers(&[Source::new("crates/a/src/lib.rs", text)]).len();
        for text in ["struct Herd;", "fn the_herd() {}", "const HERD: u8 = 1;", "struct SmallHerd2;"] {
            assert_eq!(found(text), 1, "{text}");
        }
        for text in ["// a herd", "fn shepherd() {}", "let text = \"herd\";", "struct Shepherds;"] {
            assert_eq!(found(text), 0, "{text}");
        }
    }
}
