//! The repository describes only the project. It does not mention the environment in which it was
//! written, because readers do not have this environment.

use crate::{Fault, Source};

/// The words, cut in two so that this file does not hold them.
const WORDS: [[&str; 2]; 9] = [
    ["/wo", "rk/"],
    ["../sha", "red"],
    ["sha", "red/reference"],
    ["sha", "red/fixtures"],
    [".lib", "rary"],
    ["helper ", "session"],
    ["DESI", "GN.md"],
    ["BRI", "EF.md"],
    ["/opt/ri", "val"],
];

/// No file names the workplace.
pub fn words(sources: &[Source]) -> Vec<Fault> {
    let words: Vec<String> = WORDS.iter().map(|halves| halves.concat()).collect();
    let mut faults = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{}: `{word}` means nothing to a reader", source.path, index + 1));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_anywhere() {
        for halves in WORDS {
            let text = format!("# A heading\nsee {}\n", halves.concat());
            assert_eq!(words(&[Source::new("docs/a.md", &text)]).len(), 1, "{halves:?}");
        }
        assert_eq!(words(&[Source::new("docs/a.md", "libraries work\n")]).len(), 0);
    }
}
