//! Names in logs and messages, which may hold any bytes.

use std::fmt::Display;

/// Text with names in it, as people and logs see it: control characters are escaped, so that no
/// name begins a line or moves a cursor.
#[must_use]
pub fn printable(text: impl Display) -> String {
    let text = text.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_name_neither_begins_a_line_nor_moves_the_cursor() {
        assert_eq!(printable("/ä \\n"), "/ä \\n");
        assert_eq!(printable("a\nerror: b\r\u{1b}[2J\u{9b}"), "a\\nerror: b\\r\\u{1b}[2J\\u{9b}");
    }
}
