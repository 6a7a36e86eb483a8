//! Names in the code are words of the field.

use crate::{Fault, Source, sources::code};

/// Words that no name in the code has, and what is said instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("attend", "the thing that is set or watched"),
    ("deed", "effect"),
    ("dispel", "recheck"),
    ("farewell", "close"),
    ("fate", "outcome"),
    ("greet", "handshake"),
    ("herd", "commit_delay"),
    ("insist", "retry"),
    ("judge", "classify or check"),
    ("recall", "record_cache"),
    ("shelf", "index"),
    ("story", "reason or context"),
    ("told", "notice, message or reported"),
    ("ward", "guardian socket"),
];

/// Words of a name from which on it is a sentence, as names of tests are.
const SENTENCE: usize = 5;

/// No name in the code has a word that its readers do not know.
pub fn identifiers(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (index, line) in source.text.lines().enumerate() {
            // What stands between quotes is no name.
            let names = code(line)
                .split('"')
                .step_by(2)
                .flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
            let words: Vec<String> =
                names.map(words).filter(|words| words.len() < SENTENCE).flatten().collect();
            for (word, instead) in FORBIDDEN.iter().filter(|(word, _)| words.iter().any(|own| own == word)) {
                faults.push(format!("{}:{}: `{word}` in a name: say {instead}", source.path, index + 1));
            }
        }
    }
    faults
}

/// The words of a name, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for letter in name.chars() {
        let begins = !before.is_alphabetic() || letter.is_uppercase() && !before.is_uppercase();
        if letter.is_alphabetic() {
            match words.last_mut() {
                Some(word) if !begins => word.extend(letter.to_lowercase()),
                _ => words.push(letter.to_lowercase().collect()),
            }
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
        for text in ["// a herd", "fn shepherd() {}", "struct Shepherds;", "fn a_herd_of_cows_waits() {}"] {
            assert_eq!(found(text), 0, "{text}");
        }
    }
}
