//! Comments and documents wrap at 100 columns.

use std::path::Path;

use crate::{Fault, Source};

/// Columns of prose.
const WIDTH: usize = 100;

/// No line of a comment or a document is wider than 100 columns. Tables, code in documents and a
/// single word, such as an address, may be.
pub fn widths(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in sources {
        let document = Path::new(&source.path).extension().is_some_and(|extension| extension == "md");
        let mut fenced = false;
        for (index, line) in source.text.lines().enumerate() {
            let prose = match document {
                true => Some(line),
                false if source.is_rust() => comment(line, "//"),
                false if source.path.starts_with("scripts/") => comment(line, "#"),
                false => None,
            };
            let Some(prose) = prose else { continue };
            fenced ^= document && prose.trim_start().starts_with("```");
            let words = prose.split_whitespace().count();
            let table = prose.trim_start().starts_with('|');
            if line.chars().count() > WIDTH && words > 1 && !table && !fenced {
                faults.push(format!("{}:{}: wrap it at {WIDTH} columns", source.path, index + 1));
            }
        }
    }
    faults
}

/// The text of a line that is a comment and nothing else.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let text = line.trim_start().strip_prefix(mark)?;
    Some(text.trim_start_matches(['/', '!', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_prose_is_found_where_people_read_it() {
        let wide = "word ".repeat(21);
        let table = format!("| {wide} |");
        let code = format!("```sh\n{wide}\n```");
        let of = |path: &str, text: &str| widths(&[Source::new(path, text)]).len();
        assert_eq!(of("a.md", &wide), 1);
        assert_eq!((of("a.md", &table), of("a.md", &code), of("a.md", &"w".repeat(120))), (0, 0, 0));
        assert_eq!(
            (of("a.rs", &format!("    /// {wide}")), of("a.rs", &format!("let a = 1; {wide}"))),
            (1, 0)
        );
        assert_eq!((of("a.rs", &format!("/// {table}")), of("scripts/a", &format!("# {wide}"))), (0, 1));
    }
}
