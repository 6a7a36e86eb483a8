//! Sizes as people write them.
//!
//! What must stay true: a suffix means the same everywhere; only the unit of a bare number depends
//! on who asks.

/// Bytes of a number with one of the suffixes K, M, G, T, P, E (powers of 1024, `iB` or `B` may
/// follow), or of a bare number in `unit`s. `None` if the text is neither, or too much.
pub fn parse_size(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let suffix = suffix.trim().to_ascii_uppercase();
    let shift = match suffix.strip_suffix("IB").or_else(|| suffix.strip_suffix('B')).unwrap_or(&suffix) {
        "" if suffix.is_empty() => return fit(number * unit as f64),
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return None,
    };
    fit(number * (1_u64 << shift) as f64)
}

fn fit(bytes: f64) -> Option<u64> {
    (bytes.is_finite() && bytes < i64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_beats_the_unit() {
        assert_eq!(parse_size("300", 1 << 20), Some(300 << 20));
        assert_eq!(parse_size("1.5G", 1 << 20), Some(3 << 29));
        assert_eq!(parse_size("7B", 1 << 20), Some(7));
        assert_eq!(parse_size("1X", 1), None);
    }
}
