//! A small rendering farm: no client fails, and each block is read from the object store once.

use std::process::Command;

use serde_json::Value;

/// Runs the farm; a row for each run.
fn render(arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-farm"));
    // On a busy machine, clients would read the object store themselves sooner.
    command.args(["render", "--json", "--delay", "5", "--threads", "8", "--min-timeout", "60000"]);
    command.args(["--scale", "0.0005"]);
    let output = command.args(arguments).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn number(row: &Value, names: &[&str]) -> f64 {
    let found = names.iter().fold(row, |value, name| &value[*name]);
    found.as_f64().unwrap_or_else(|| panic!("no {names:?} in {row}"))
}

#[test]
fn however_many_clients_read_all_the_object_store_is_read_once() {
    let rows = render(&["--clients", "1,10", "--nodes", "2", "--idle", "0", "--whole"]);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let set = number(row, &["set_bytes"]);
        let clients = number(row, &["clients"]);
        assert_eq!(row["outcome"]["failed"], 0, "{row}");
        let read = number(row, &["outcome", "bytes"]);
        assert!((read - clients * set).abs() < 1.0, "each client has read everything: {row}");
        let store = number(row, &["store_bytes"]);
        assert!(store >= set && store <= 1.05 * set, "{store} of {set} bytes: {row}");
        assert_eq!(row["outcome"]["store_bytes"], 0, "clients read none themselves: {row}");
    }
}

#[test]
fn clients_share_threads_and_ask_the_engine_seldom() {
    let rows = render(&["--clients", "30", "--idle", "1", "--reads", "20000", "--per-process", "15"]);
    let row = &rows[0];
    assert_eq!(row["outcome"]["failed"], 0, "{row}");
    assert_eq!(row["outcome"]["completions"].as_array().map(Vec::len), Some(30), "{row}");
    let (trips, asked) = (number(row, &["outcome", "trips"]), number(row, &["outcome", "asked"]));
    assert!(trips <= 0.05 * asked, "{trips} trips for {asked} stats and opens: {row}");
    assert!(number(&row["ready"][0], &["idle"]) <= 1.0, "{row}");
    let threads = number(row, &["outcome", "threads"]);
    assert!(threads < 40.0, "15 clients have {threads} threads: {row}");
}
