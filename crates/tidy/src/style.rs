//! The rules on how a file is written. They check text, not syntax. This is simple, and sufficient
//! for this workspace.

use crate::{
    Fault, Source,
    sources::{code, has_word},
};

/// Lines of a file before its tests. Beyond it a file says too much at once.
const LINES: usize = 500;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 9] =
    ["utils", "util", "common", "helper", "helpers", "manager", "managers", "misc", "shared_utils"];

fn rust(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_rust())
}

/// The lines that ship and contain one of `needles` in code.
fn shipping(source: &Source, needles: &[&str], advice: &str) -> Vec<Fault> {
    let hit = |line: &str| needles.iter().find(|needle| code(line).contains(**needle)).copied();
    source
        .production()
        .filter_map(|(number, line)| Some((number, hit(line)?)))
        .map(|(number, needle)| format!("{}:{number}: `{needle}`: {advice}", source.path))
        .collect()
}

/// No file holds more than `LINES` lines before its tests.
pub fn sizes(sources: &[Source]) -> Vec<Fault> {
    rust(sources)
        .filter(|source| source.tests_begin() > LINES && !source.path.contains("/tests/"))
        .map(|source| format!("{}: {} lines, at most {LINES}: split it", source.path, source.tests_begin()))
        .collect()
}

/// Every file opens by saying what it is.
pub fn openings(sources: &[Source]) -> Vec<Fault> {
    rust(sources)
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| format!("{}: open it with `//!`: what it is, and what must stay true", source.path))
        .collect()
}

/// No file or folder has a name that could hold anything.
pub fn names(sources: &[Source]) -> Vec<Fault> {
    rust(sources)
        .filter(|source| {
            source.path.split('/').any(|part| EMPTY_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part)))
        })
        .map(|source| format!("{}: name it by what it holds", source.path))
        .collect()
}

/// `unsafe` stays in the crates that speak to the kernel and to other languages.
pub fn unsafety(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in rust(sources).filter(|source| source.crate_folder() != Some("tidy")) {
        let lines: Vec<&str> = source.text.lines().collect();
        // What a library exports to C has a name of its own, which the attribute calls unsafe.
        let exports = |line: &str| source.crate_folder() == Some("c") && line == "#[unsafe(no_mangle)]";
        let found = lines.iter().enumerate();
        let found = found.filter(|(_, line)| has_word(code(line), "unsafe") && !exports(line));
        for at in found.map(|(at, _)| at) {
            let reason = |line: &&str| line.contains("SAFETY:") || line.contains("# Safety");
            if !matches!(source.crate_folder(), Some("fuse" | "c" | "jni" | "python" | "tasks")) {
                faults.push(format!(
                    "{}:{}: `unsafe` belongs to crates/fuse, c, jni, python and tasks",
                    source.path,
                    at + 1
                ));
            } else if !lines[at.saturating_sub(6)..=at].iter().any(reason) {
                faults.push(format!("{}:{}: say why it is sound: `// SAFETY:`", source.path, at + 1));
            }
        }
    }
    faults
}

/// Nothing that ships panics by design.
pub fn panics(sources: &[Source]) -> Vec<Fault> {
    let needles = [".unwrap()", ".expect(\"", "panic!(", "todo!(", "unimplemented!("];
    rust(sources)
        .flat_map(|source| shipping(source, &needles, "return an error that says what to do"))
        .collect()
}

/// The wall clock and randomness come from `types`, the environment is read by `cli` alone.
pub fn seams(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in rust(sources).filter(|source| source.path.starts_with("crates/")) {
        if source.crate_folder() != Some("types") {
            let needles =
                ["SystemTime::now", "rand::rng", "rand::random", "thread_rng", "getrandom(", "Uuid::new_v4"];
            faults.extend(shipping(source, &needles, "take it from sluice_types::{Clock, Rng}"));
        }
        if source.crate_folder() != Some("cli") {
            // Where a program lies (PATH) is the system's business, not a setting of ours.
            let shipped =
                Source { path: source.path.clone(), text: source.text.replace("env::var_os(\"PATH\")", "") };
            faults.extend(shipping(&shipped, &["env::var"], "only the command line reads the environment"));
        }
    }
    faults
}

/// A test waits for what it wants, never for a time: a sleep is the pause of a loop that has a
/// deadline.
pub fn sleeps(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    // A slow server is what the testkit is for.
    let slow_by_design = |source: &&Source| {
        source.crate_folder() == Some("tidy") || source.path.starts_with("crates/testkit/src/")
    };
    for source in rust(sources).filter(|source| !slow_by_design(source)) {
        let lines: Vec<&str> = source.text.lines().collect();
        let deadline = |line: &&str| line.contains("Instant::now()") || line.contains("deadline");
        for (number, _) in source.tests().filter(|(_, line)| code(line).contains("sleep(")) {
            if !lines[number.saturating_sub(9)..number].iter().any(deadline) {
                faults.push(format!("{}:{number}: wait for a condition with a deadline", source.path));
            }
        }
    }
    faults
}

/// An engine maps records: it names no operation, no caller and no error of the file system. The
/// operators of Rust are none of these operations.
pub fn engines_know_records(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in rust(sources).filter(|source| source.path.starts_with("crates/meta-")) {
        for (number, line) in source.production() {
            for word in ["FsError", "Caller", "ops::"] {
                let code = code(line).replace("ops::Deref", "");
                let named = if word.ends_with(':') { str::contains } else { has_word };
                if named(&code, word) {
                    faults.push(format!("{}:{number}: an engine must not know `{word}`", source.path));
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<Source> {
        vec![Source::new(path, text)]
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let body = "x\n".repeat(LINES);
        assert_eq!(sizes(&one("crates/a/src/b.rs", &(body.clone() + "x\n"))).len(), 1);
        let tested = body.clone() + "#[cfg(test)]\nmod tests {\n" + &body + "}\n";
        assert_eq!(sizes(&one("crates/a/src/b.rs", &tested)), Vec::<Fault>::new());
    }

    #[test]
    fn a_file_without_an_opening_and_an_empty_name_are_found() {
        assert_eq!(openings(&one("crates/a/src/b.rs", "use std::fs;\n")).len(), 1);
        assert_eq!(openings(&one("crates/a/src/b.rs", "//! What it is.\n")).len(), 0);
        assert_eq!(names(&one("crates/a/src/common/mod.rs", "")).len(), 1);
        assert_eq!(names(&one("crates/a/src/helper.rs", "")).len(), 1);
        assert_eq!(names(&one("crates/a/src/uncommon.rs", "")).len(), 0);
    }

    #[test]
    fn unsafe_elsewhere_or_without_a_reason_is_found() {
        assert_eq!(unsafety(&one("crates/data/src/a.rs", "unsafe { f() }")).len(), 1);
        assert_eq!(unsafety(&one("crates/fuse/src/a.rs", "unsafe { f() }")).len(), 1);
        assert_eq!(unsafety(&one("crates/fuse/src/a.rs", "// SAFETY: alone.\nunsafe { f() }")).len(), 0);
        assert_eq!(unsafety(&one("crates/data/src/a.rs", "#![deny(unsafe_code)] // unsafe\n")).len(), 0);
    }

    #[test]
    fn panics_clocks_and_environment_are_found_where_they_ship() {
        let text = "a.unwrap();\n#[cfg(test)]\nmod tests {\n a.unwrap();\n}\n";
        assert_eq!(panics(&one("crates/a/src/b.rs", text)).len(), 1);
        assert_eq!(panics(&one("crates/a/tests/b.rs", text)).len(), 0);
        assert_eq!(panics(&one("crates/a/src/b.rs", "// a.unwrap() is wrong\n")).len(), 0);
        assert_eq!(seams(&one("crates/data/src/b.rs", "SystemTime::now()")).len(), 1);
        assert_eq!(seams(&one("crates/types/src/b.rs", "SystemTime::now()")).len(), 0);
        assert_eq!(seams(&one("crates/data/src/b.rs", "std::env::var(\"X\")")).len(), 1);
        assert_eq!(seams(&one("crates/cli/src/b.rs", "std::env::var(\"X\")")).len(), 0);
    }

    #[test]
    fn sleeps_in_tests_are_found() {
        let text = "fn a() { sleep(b) }\n#[cfg(test)]\nmod tests {\n sleep(b)\n}\n";
        assert_eq!(
            sleeps(&one("crates/a/src/b.rs", text)),
            ["crates/a/src/b.rs:4: wait for a condition with a deadline"]
        );
    }

    #[test]
    fn engines_that_know_the_file_system_are_found() {
        assert_eq!(
            engines_know_records(&one("crates/meta-sql/src/a.rs", "use sluice_types::FsError;")).len(),
            1
        );
        assert_eq!(
            engines_know_records(&one("crates/meta-sql/src/a.rs", "use sluice_meta::ops::Create;")).len(),
            1
        );
        assert_eq!(engines_know_records(&one("crates/meta/src/a.rs", "use sluice_types::FsError;")).len(), 0);
    }
}
