//! Names in logs, which may hold any bytes.

/// Text as a log shows it: no sign of it begins a line or moves a cursor.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for char in text.chars() {
        if char.is_control() {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_name_forges_no_line_of_a_log() {
        assert_eq!(printable("ä\n2026 ERROR \u{1b}[31m"), "ä\\n2026 ERROR \\u{1b}[31m");
    }
}
