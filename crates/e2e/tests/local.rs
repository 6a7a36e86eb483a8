//! The comparer itself, on local file systems: alike ones show no difference, and one that lies is
//! found.

use sluice_e2e::compare::{Capabilities, Links, Op, Plan, Side, difference, generate, run};
use std::{path::Path, time::Duration};

fn plan(reference: &Path, tested: &Path, seed: u64) -> Plan {
    Plan {
        reference: reference.to_owned(),
        tested: tested.to_owned(),
        seed,
        operations: 3000,
        only: Vec::new(),
        every: 500,
        sync: false,
        shorten: Duration::from_secs(20),
    }
}

#[test]
fn a_file_system_is_like_itself() -> anyhow::Result<()> {
    let (a, b) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for seed in 1..4 {
        let found = run(&plan(a.path(), b.path(), seed))?;
        assert!(found.is_none(), "{}", found.map(|found| found.to_string()).unwrap_or_default());
    }
    Ok(())
}

#[test]
fn a_seed_gives_the_same_operations_of_every_kind() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let can = Capabilities::probe(folder.path())?;
    let ops = generate(5, 5000, can);
    assert_eq!(ops, generate(5, 5000, can));
    assert_ne!(ops, generate(6, 5000, can));
    let kinds: std::collections::HashSet<_> = ops.iter().map(std::mem::discriminant::<Op>).collect();
    // All 25, less the few that a file system may lack.
    assert!(kinds.len() >= 22, "{} kinds", kinds.len());
    Ok(())
}

/// Every operation is done twice, once with a fault at the end; the tree must tell.
#[test]
fn each_kind_of_fault_is_found() -> anyhow::Result<()> {
    type Fault = fn(&Path) -> std::io::Result<()>;
    let faults: [(&str, Fault); 7] = [
        ("a byte", |root| {
            use std::os::unix::fs::FileExt;
            std::fs::File::options().write(true).open(root.join("f"))?.write_all_at(b"x", 5000)
        }),
        ("a size", |root| std::fs::File::options().write(true).open(root.join("f"))?.set_len(1)),
        ("a mode", |root| {
            std::fs::set_permissions(root.join("f"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        }),
        ("a name", |root| std::fs::write(root.join("g"), b"")),
        ("a link", |root| {
            std::fs::remove_file(root.join("l"))?;
            std::fs::copy(root.join("f"), root.join("l")).map(drop)
        }),
        ("a target", |root| {
            std::fs::remove_file(root.join("s"))?;
            std::os::unix::fs::symlink("elsewhere", root.join("s"))
        }),
        ("a time", |root| {
            let time = std::time::UNIX_EPOCH + Duration::from_nanos(5_000_000_001);
            std::fs::File::options().write(true).open(root.join("f"))?.set_modified(time)
        }),
    ];
    for (what, fault) in faults {
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        for folder in &folders {
            let root = folder.path();
            std::fs::write(root.join("f"), vec![7; 10_000])?;
            std::fs::hard_link(root.join("f"), root.join("l"))?;
            std::os::unix::fs::symlink("f", root.join("s"))?;
        }
        let [a, b] = [0, 1].map(|at| Side::new(folders[at].path().to_owned(), Links::All));
        assert_eq!(difference(&a, &b), None);
        fault(&b.root)?;
        assert!(difference(&a, &b).is_some(), "{what} was not found");
    }
    Ok(())
}
