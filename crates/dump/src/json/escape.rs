//! Names, link targets and values as text: `%XX` stands for a byte.
//!
//! Names of extended attributes are plain JSON strings instead, as JuiceFS writes them.

/// Appends `bytes`; what is no UTF-8, no visible character or special in JSON becomes `%XX`.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            if byte <= b' ' || matches!(byte, b'%' | b'"' | b'\\') {
                escape_byte(byte, out);
            } else {
                out.push(byte);
            }
        }
        for byte in chunk.invalid() {
            escape_byte(*byte, out);
        }
    }
}

/// Appends `text` as it stands in a plain JSON string: only what JSON requires is escaped.
pub(super) fn escape_plain(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..b' ' => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(byte),
        }
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// The bytes that `text` stands for. A percent sign before anything but two digits is itself.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        if *byte == b'%'
            && let (Some(high), Some(low)) = (digit(0), digit(1))
        {
            out.push((high << 4 | low) as u8);
            rest = &tail[2..];
        } else {
            out.push(*byte);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], "Grüße 100%41".as_bytes(), b"\xE4\xB8", b"a\xFFb", b""] {
            let mut text = Vec::new();
            escape(bytes, &mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(!text.contains(['"', '\\', '\n', ' ']));
            assert_eq!(unescape(&text), bytes);
        }
    }

    #[test]
    fn a_plain_string_is_json() {
        let all: String = (0..=0x2FF).filter_map(char::from_u32).chain("\u{FFFD}\u{1F600}".chars()).collect();
        let mut text = vec![b'"'];
        escape_plain(&all, &mut text);
        text.push(b'"');
        assert_eq!(serde_json::from_slice::<String>(&text).expect("JSON"), all);
    }

    #[test]
    fn bytes_are_written_as_the_format_has_them() {
        let mut text = Vec::new();
        escape("ü %\"\\\u{1}".as_bytes(), &mut text);
        escape(b"\xC3(", &mut text);
        assert_eq!(String::from_utf8(text).expect("UTF-8"), "ü%20%25%22%5C%01%C3(");
        assert_eq!(unescape("100%"), b"100%");
        assert_eq!(unescape("%zz%4"), b"%zz%4");
        assert_eq!(unescape("%5c"), b"\\");
    }
}
