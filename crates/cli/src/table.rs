//! Formats tables for the terminal.
//!
//! What must stay true: a row is one line, whatever names are in it.

use std::fmt::Write as _;

use sluice_types::printable;

/// Prints rows under a head, numbers to the right; columns in `left` stand to the left.
pub(crate) fn print(rows: &[Vec<String>], left: &[usize]) {
    out!("{}", render(rows, left));
}

fn render(rows: &[Vec<String>], left: &[usize]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(printable).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let bar = widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("+");
    let bar = format!("+{bar}+\n");
    let mut out = bar.clone();
    for (line, row) in rows.iter().enumerate() {
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let pad = " ".repeat(width - cell.chars().count());
            // Writing to a string cannot fail.
            let _ = if left.contains(&column) {
                write!(out, "| {cell}{pad} ")
            } else {
                write!(out, "| {pad}{cell} ")
            };
        }
        out += "|\n";
        if line == 0 {
            out += &bar;
        }
    }
    out + &bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_cell() {
        let rows = [vec!["PATH".to_owned()], vec!["a\n\u{1b}[m".into()]];
        assert_eq!(
            render(&rows, &[0]),
            "+-------------+\n| PATH        |\n+-------------+\n| a\\n\\u{1b}[m |\n+-------------+\n"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["PATH".to_owned(), "SIZE".into()], vec!["/ü".into(), "12".into()]];
        assert_eq!(
            render(&rows, &[0]),
            "+------+------+\n| PATH | SIZE |\n+------+------+\n| /ü   |   12 |\n+------+------+\n"
        );
    }
}
