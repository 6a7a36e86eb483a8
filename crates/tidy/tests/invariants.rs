//! The rules of the workspace as tests. A broken rule names every place, so that one run is enough
//! to fix them.

use sluice_tidy::{Fault, Source};

fn hold(rule: fn(&[Source]) -> Vec<Fault>) {
    let sources = sluice_tidy::workspace().expect("the repository is readable");
    assert!(sluice_tidy::members(&sources).len() > 5, "the crates were not found");
    let faults = rule(&sources);
    assert!(faults.is_empty(), "{} faults:\n{}\n", faults.len(), faults.join("\n"));
}

macro_rules! rules {
    ($($test:ident: $rule:ident,)*) => {
        $(#[test]
        fn $test() {
            hold(sluice_tidy::$rule);
        })*
    };
}

rules! {
    dependencies_point_the_right_way: directions,
    files_use_each_other_in_no_circle: circles,
    engines_know_only_records: engines_know_records,
    files_are_short: sizes,
    files_say_what_they_are: openings,
    names_say_something: names,
    names_are_words_of_the_field: identifiers,
    prose_is_narrow: widths,
    unsafe_code_is_kept_to_the_kernel: unsafety,
    nothing_that_ships_panics: panics,
    clock_randomness_and_environment_have_one_door: seams,
    tests_do_not_sleep: sleeps,
    the_project_speaks_of_itself: words,
}
