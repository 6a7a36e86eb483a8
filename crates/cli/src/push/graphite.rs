//! Graphite: a line for each number, with labels as tags.

use std::{fmt::Write as _, io::Write as _};

use anyhow::Result;
use sluice_types::{Clock as _, SystemClock};

use super::labels::Labels;
use crate::small_request::connect;

/// Where numbers are sent to, and which labels each gets.
#[derive(Clone)]
pub(crate) struct Graphite {
    /// `HOST:PORT` of the plaintext protocol.
    pub(crate) address: String,
    pub(crate) labels: Labels,
}

impl Graphite {
    /// Sends what `text` says.
    pub(super) fn push(&self, text: impl Fn(&[(String, String)]) -> String) -> Result<()> {
        let lines = lines(&text(&self.labels), SystemClock.now().sec);
        let mut stream = connect(&self.address)?;
        stream.write_all(lines.as_bytes())?;
        stream.flush()?;
        Ok(())
    }
}

/// The samples of a page of Prometheus, as lines of Graphite. What is no number is left out.
fn lines(page: &str, now: i64) -> String {
    let mut lines = String::with_capacity(page.len());
    for sample in page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((series, value)) = sample.rsplit_once(' ') else { continue };
        if !value.parse::<f64>().is_ok_and(f64::is_finite) {
            continue;
        }
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        lines.push_str(name);
        for (label, value) in tags(labels) {
            if !value.is_empty() {
                let _ = write!(lines, ";{label}={value}");
            }
        }
        let _ = writeln!(lines, " {value} {now}");
    }
    lines
}

/// The labels of a sample, with values that Graphite takes: no blanks, no `;`, no `~` in front.
fn tags(labels: &str) -> Vec<(&str, String)> {
    let (mut tags, mut rest) = (Vec::new(), labels);
    while let Some((name, behind)) = rest.split_once("=\"") {
        let (mut value, mut escaped, mut end) = (String::new(), false, behind.len());
        for (at, sign) in behind.char_indices() {
            match sign {
                '\\' if !escaped => {
                    escaped = true;
                    continue;
                }
                '"' if !escaped => {
                    end = at;
                    break;
                }
                'n' if escaped => value.push('_'),
                ';' => value.push('_'),
                sign if sign.is_whitespace() => value.push('_'),
                '~' if value.is_empty() => value.push('_'),
                sign => value.push(sign),
            }
            escaped = false;
        }
        tags.push((name.trim_start_matches(','), value));
        rest = behind.get(end + 1..).unwrap_or_default();
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_lines() {
        let page = "# HELP a b\n# TYPE a counter\na 1\n\
                    b_bucket{le=\"0.1\",mp=\"/a b;\\\"c\\\\d\\\"\",none=\"\"} 2.5\nb{le=\"+Inf\"} 3\nc NaN\n";
        assert_eq!(lines(page, 7), "a 1 7\nb_bucket;le=0.1;mp=/a_b_\"c\\d\" 2.5 7\nb;le=+Inf 3 7\n");
    }
}
