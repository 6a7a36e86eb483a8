//! A plot of the completion time for each GB against the number of clients.

use std::fmt::Write as _;

use super::report::Row;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Space for the axes.
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 30.0;
const RIGHT: f64 = 30.0;
/// Lines across.
const LINES: u32 = 4;

/// The plot as SVG. The horizontal axis is logarithmic, the vertical one begins at zero.
pub(crate) fn svg(rows: &[Row]) -> String {
    let most = rows.iter().map(Row::per_gb).fold(0.0, f64::max).max(1e-9) * 1.2;
    let clients = |row: &Row| (row.clients.max(1) as f64).ln();
    let low = rows.iter().map(clients).fold(f64::INFINITY, f64::min);
    let high = rows.iter().map(clients).fold(low + 1e-9, f64::max);
    let x = |row: &Row| LEFT + (clients(row) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    for line in 0..=LINES {
        let value = most * f64::from(line) / f64::from(LINES);
        let at = y(value);
        let end = WIDTH - RIGHT;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let points: Vec<String> =
        rows.iter().map(|row| format!("{:.1},{:.1}", x(row), y(row.per_gb()))).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1565c0\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    for row in rows {
        let (x, y) = (x(row), y(row.per_gb()));
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#1565c0\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1}</text>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y - 10.0,
            row.per_gb(),
            HEIGHT - BOTTOM + 18.0,
            row.clients
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">clients</text>\n\
         <text x=\"{LEFT}\" y=\"18\">seconds until all are done, for each GB that programs read</text>\n</svg>",
        HEIGHT - 10.0
    );
    out
}
