//! Metrics as text: the lines of `.stats`, and the text format of Prometheus (version 0.0.4).

use std::fmt::{self, Write as _};

use sluice_types::metrics::Distribution;

use super::family::{Families, Family, Kind, Value};

/// Labels whose values are part of the names in `.stats`.
const IN_NAMES: [&str; 4] = ["method", "errno", "cause", "state"];

/// The lines of `.stats`: name and number. Of a histogram there are the number of values
/// (`_total`) and their sum.
pub(crate) fn stats(families: Families) -> String {
    let mut text = String::with_capacity(8 << 10);
    for family in families.sorted() {
        for (labels, value) in &family.samples {
            let mut name = family.name.to_owned();
            for (_, value) in labels.iter().filter(|(label, _)| IN_NAMES.contains(label)) {
                name.push('_');
                name.push_str(value);
            }
            // Writing to a string cannot fail.
            let _ = match value {
                Value::Number(number) => writeln!(text, "{name} {number}"),
                Value::Values(values) => {
                    writeln!(text, "{name}_total {}\n{name}_sum {}", values.count(), values.sum)
                }
            };
        }
    }
    text
}

/// The text format of Prometheus. Each sample also gets the labels `common`.
pub(crate) fn prometheus(families: Families, common: &[(String, String)]) -> String {
    let mut text = String::with_capacity(64 << 10);
    for family in families.sorted() {
        // Writing to a string cannot fail.
        let _ = write_family(&mut text, &family, common);
    }
    text
}

fn write_family(text: &mut String, family: &Family, common: &[(String, String)]) -> fmt::Result {
    let Family { name, help, kind, samples } = family;
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    for (own, value) in samples {
        let labels = labels(own, common);
        match value {
            Value::Number(number) => writeln!(text, "{name}{} {}", Braces(&labels), Float(*number))?,
            Value::Values(values) => write_histogram(text, name, &labels, values)?,
        }
    }
    Ok(())
}

fn write_histogram(text: &mut String, name: &str, labels: &str, values: &Distribution) -> fmt::Result {
    let bounds = values.bounds.iter().copied().chain([f64::INFINITY]);
    let separator = if labels.is_empty() { "" } else { "," };
    let mut count = 0;
    for (bound, more) in bounds.zip(&values.counts) {
        count += more;
        writeln!(text, "{name}_bucket{{{labels}{separator}le=\"{}\"}} {count}", Float(bound))?;
    }
    let labels = Braces(labels);
    writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {count}", Float(values.sum))
}

/// Labels by name, as they stand between braces.
fn labels(own: &[(&'static str, String)], common: &[(String, String)]) -> String {
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let mut all: Vec<_> =
        own.chain(common.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect();
    all.sort_unstable();
    let mut text = String::new();
    for (name, value) in all {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for char in value.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

/// Labels in braces, if there are any.
struct Braces<'a>(&'a str);

impl fmt::Display for Braces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{{{}}}", self.0) }
    }
}

/// A number in as few digits as tell it from all others, in the form in which exporters of
/// Prometheus write it. Bounds of classes are text to a database, so that the form matters.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = *self;
        if number.is_nan() {
            return f.write_str("NaN");
        }
        if number.is_infinite() {
            return f.write_str(if number > 0.0 { "+Inf" } else { "-Inf" });
        }
        let text = format!("{number:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return f.write_str(&text) };
        match exponent.parse::<i32>() {
            Ok(power) if !(-4..6).contains(&power) => {
                let sign = if power < 0 { '-' } else { '+' };
                write!(f, "{digits}e{sign}{:02}", power.abs())
            }
            _ => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_types::metrics::{Buckets, Histogram};

    use super::*;

    fn families() -> Families {
        let times = Histogram::new(&Buckets::times(0.000_01, 1.8, 3));
        times.observe(Duration::from_micros(11));
        times.observe(Duration::from_secs(1));
        let mut families = Families::default();
        families.histogram(("x_seconds", "Times."), &times);
        families.gauge(("a_bytes", "Bytes."), 1_048_576.0);
        families.counters(("b_total", "Events."), "method", [("PUT", 2.5), ("GET", 0.0)]);
        families.counters(("none_total", "Nothing."), "method", Vec::<(&str, f64)>::new());
        families
    }

    #[test]
    fn lines_of_stats() {
        let expected = "a_bytes 1048576\nb_total_GET 0\nb_total_PUT 2.5\nx_seconds_total 2\nx_seconds_sum \
                        1.000011\n";
        assert_eq!(stats(families()), expected);
    }

    #[test]
    fn text_of_prometheus() {
        let common = [("mp", "/a \"b\\\n"), ("z", "1")].map(|(name, value)| (name.into(), value.into()));
        let expected = r#"# HELP a_bytes Bytes.
# TYPE a_bytes gauge
a_bytes{mp="/a \"b\\\n",z="1"} 1.048576e+06
# HELP b_total Events.
# TYPE b_total counter
b_total{method="GET",mp="/a \"b\\\n",z="1"} 0
b_total{method="PUT",mp="/a \"b\\\n",z="1"} 2.5
# HELP x_seconds Times.
# TYPE x_seconds histogram
x_seconds_bucket{mp="/a \"b\\\n",z="1",le="1e-05"} 0
x_seconds_bucket{mp="/a \"b\\\n",z="1",le="1.8e-05"} 1
x_seconds_bucket{mp="/a \"b\\\n",z="1",le="3.24e-05"} 1
x_seconds_bucket{mp="/a \"b\\\n",z="1",le="+Inf"} 2
x_seconds_sum{mp="/a \"b\\\n",z="1"} 1.000011
x_seconds_count{mp="/a \"b\\\n",z="1"} 2
"#;
        assert_eq!(prometheus(families(), &common), expected);
        assert!(prometheus(families(), &[]).contains("\na_bytes 1.048576e+06\n"));
    }

    #[test]
    fn numbers_have_the_form_of_other_exporters() {
        for (number, text) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (0.000_1, "0.0001"),
            (0.000_058_320_000_000_000_004, "5.8320000000000004e-05"),
            (524_288.0, "524288"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (1.125_899_906_842_624e15, "1.125899906842624e+15"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Float(number).to_string(), text);
        }
    }
}
