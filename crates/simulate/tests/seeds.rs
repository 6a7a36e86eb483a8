//! A fixed number of seeds, and that a seed decides everything. `sluice-simulate --seeds N` runs
//! more.

use sluice_simulate::simulate;

/// Seeds of one run: some seconds.
const SEEDS: u64 = 150;

#[test]
fn nothing_is_wrong_after_any_seed() {
    let bad: Vec<String> = (0..SEEDS)
        .filter_map(|seed| {
            let faults = simulate(seed, false).faults;
            (!faults.is_empty()).then(|| format!("seed {seed}: {}", faults.join("\n  ")))
        })
        .collect();
    assert!(bad.is_empty(), "{}\nrun one again with sluice-simulate --verbose --seed N", bad.join("\n"));
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..12 {
        assert_eq!(simulate(seed, true), simulate(seed, true), "seed {seed}");
    }
}
