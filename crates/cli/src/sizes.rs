//! Sizes, numbers, durations and modes as people write them on a command line.
//!
//! What must stay true: a text has the same meaning for every flag. Only the unit of a number
//! without a unit depends on the flag.

use std::time::Duration;

use sluice_types::{parse_duration, parse_size};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bytes; a bare number is bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    size(text, 1)
}

/// Bytes; a bare number is KiB.
pub(crate) fn kib(text: &str) -> Result<u64, String> {
    size(text, KIB)
}

/// Bytes; a bare number is MiB.
pub(crate) fn mib(text: &str) -> Result<u64, String> {
    size(text, MIB)
}

/// Bytes; a bare number is GiB.
pub(crate) fn gib(text: &str) -> Result<u64, String> {
    size(text, GIB)
}

fn size(text: &str, unit: u64) -> Result<u64, String> {
    let text = text.trim();
    parse_size(text, unit).ok_or_else(|| {
        let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_number = text.strip_suffix(suffix).is_some_and(|number| number.parse::<f64>().is_ok());
        if is_number && parse_size(&format!("1{suffix}"), unit).is_some() {
            format!("{text} is too large: a size is less than 8E")
        } else {
            format!("{text} is no size: write a number and K, M, G, T, P or E, such as 4M")
        }
    })
}

/// A whole number.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    up_to(text, i64::MAX as u64)
}

/// Days, less than a hundred years.
pub(crate) fn days(text: &str) -> Result<i64, String> {
    up_to(text, 36_499).map(|days| days as i64)
}

/// Megabits a second.
pub(crate) fn mbps(text: &str) -> Result<u32, String> {
    up_to(text, u32::MAX.into()).map(|mbps| mbps as u32)
}

/// Threads that each have a connection of their own.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match up_to(text, 256)? {
        0 => Err("it must be at least 1".into()),
        threads => Ok(threads as usize),
    }
}

fn up_to(text: &str, most: u64) -> Result<u64, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text} is no number: write one from 0 to {most}"));
    }
    if digits != text {
        return Err("it must not be below 0".into());
    }
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{text} is too large: the most is {most}"))
}

/// A time such as `1h30m`, `100ms` or `1.5s`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| format!("{text} is no duration: write numbers with ms, s, m, h or d, such as 1h30m"))
}

/// Permission bits in octal.
pub(crate) fn octal(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| format!("{text} is no mode: write octal digits, such as 0644"))
}

/// A size for people: `5.89 KiB`.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(6);
    let unit = ["K", "M", "G", "T", "P", "E"][power as usize - 1];
    format!("{:.2} {unit}iB", bytes as f64 / (1_u64 << (10 * power)) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes_and_the_unit_of_the_flag() {
        assert_eq!(mib("300"), Ok(300 << 20));
        assert_eq!(mib("300M"), Ok(300 << 20));
        assert_eq!(gib("1.5"), Ok(3 << 29));
        assert_eq!(kib("128k"), Ok(128 << 10));
        assert_eq!(mib("2GiB"), Ok(2 << 30));
        assert_eq!(mib("7B"), Ok(7));
        assert_eq!(bytes("0"), Ok(0));
        for wrong in ["", "M", "1X", "1.2.3", "-1", "99999999E"] {
            assert!(mib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_that_is_too_large_is_told_from_none() {
        let large = "9".repeat(400);
        for size in ["8E", "99999999999", "8589934592G", "7000000000000P", &large] {
            assert!(gib(size).unwrap_err().contains("is too large"), "{size}");
        }
        for wrong in ["", "E", "9X", "1.2.3", "-9E", "9E9"] {
            assert!(gib(wrong).unwrap_err().contains("is no size"), "{wrong}");
        }
        assert!(gib("7E").is_ok());
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!((days("0"), mbps("4294967295"), threads("256")), (Ok(0), Ok(u32::MAX), Ok(256)));
        assert_eq!(number("9223372036854775807"), Ok(i64::MAX as u64));
        for wrong in ["", "-", "abc", "1.5", "+1", " 1"] {
            assert!(days(wrong).unwrap_err().ends_with("is no number: write one from 0 to 36499"), "{wrong}");
        }
        assert!(days("-1").unwrap_err().contains("must not be below 0"));
        for large in ["36500", "99999999999999999999999"] {
            assert!(days(large).unwrap_err().contains("is too large: the most is 36499"), "{large}");
        }
        assert!(threads("0").unwrap_err().contains("at least 1"));
        assert!(threads("257").unwrap_err().contains("the most is 256"));
    }

    #[test]
    fn durations_add_up() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("1.0s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        for wrong in ["", "s", "1x", "-1", "1h-5m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_are_octal_and_sizes_readable() {
        assert_eq!(octal("0600"), Ok(0o600));
        assert!(octal("0800").is_err() && octal("77777").is_err());
        assert_eq!(human(6036), "5.89 KiB");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1 << 30), "1.00 GiB");
    }
}
