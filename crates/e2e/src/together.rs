//! Two programs on one volume at once: each reads what the other wrote, each removes what the other
//! created, and both programs' `fsck` report no errors.

mod both;
mod change_log;
mod dumps;
mod owners;
mod quotas;
mod space;

use crate::{
    compare::{Links, Side, difference},
    notices, pattern,
    rig::{Engine, Volume, until},
    shared,
};
use anyhow::{Context, anyhow};
use both::{NAMES, both};
use std::path::{Path, PathBuf};

/// A key that protects nothing.
const KEY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../object/tests/data/keys/pkcs1.pem"));

/// How the blocks of a volume are stored: the flags of `format`, and whether random changes are
/// made as well.
///
/// They are not on volumes with zstd: `JuiceFS` up to 1.4.1 may show wrong bytes after a short
/// slice that it reads for the first time there, whoever wrote it (juicedata/juicefs#7555).
const KINDS: [(&str, &[&str], bool); 5] = [
    ("as they are", &[], true),
    ("lz4, hashed names", &["--compress", "lz4", "--block-size", "256", "--hash-prefix"], true),
    ("zstd", &["--compress", "zstd"], false),
    ("AES-256-GCM", &["--encrypt-rsa-key", "KEY", "--compress", "lz4"], true),
    ("ChaCha20", &["--encrypt-rsa-key", "KEY", "--encrypt-algo", "chacha20-rsa"], true),
];

/// Formats volumes of all kinds with the first of `programs`, mounts each with both, and works in
/// it from both sides; then one that keeps what users and groups use, which `juicefs` counts again.
///
/// # Errors
/// The first thing that one of them does not see as the other left it.
pub fn run(
    programs: [&Path; 2],
    juicefs: &Path,
    engine: Engine,
    within: &Path,
    seed: u64,
    operations: usize,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(within)?;
    let key = within.join("rsa.pem");
    std::fs::write(&key, KEY)?;
    let key = key.to_string_lossy();
    for (name, flags, random) in KINDS {
        let flags: Vec<&str> = flags.iter().map(|flag| if *flag == "KEY" { &key } else { *flag }).collect();
        // The first kind has all of the random changes, the others enough for each to meet every
        // kind of change.
        let operations = if flags.is_empty() { operations } else { operations / 5 };
        let mut volume = Volume::new(programs[0], engine, within, &flags)?;
        let random = random.then_some((seed, operations));
        both(&mut volume, programs, |mounts| work(mounts, random))
            .with_context(|| format!("blocks: {name}"))?;
        println!("ok blocks: {name}");
    }
    owners::run(programs, juicefs, engine, within).context("usage of users and groups")?;
    println!("ok usage of users and groups");
    quotas::run(programs, engine, within).context("quotas of directories")?;
    println!("ok quotas of directories");
    let [one, other] = programs;
    let sluice = if one == juicefs { other } else { one };
    dumps::run([sluice, juicefs], engine, within, make).context("dumps")?;
    println!("ok dumps");
    space::run([sluice, juicefs], engine, within, make).context("space that is given back")?;
    println!("ok space that is given back");
    change_log::run([sluice, juicefs], engine, within).context("the change log")?;
    println!("ok the change log");
    if matches!(engine, Engine::Redis | Engine::RedisSentinel) {
        notices::by_another(sluice, juicefs, engine, within).context("a client cache beside JuiceFS")?;
        println!("ok client cache beside JuiceFS");
    }
    Ok(())
}

fn work(mounts: &[PathBuf], random: Option<(u64, usize)>) -> anyhow::Result<()> {
    crowd(mounts).context("many at once in one directory")?;
    if let Some((seed, operations)) = random {
        shared::run(mounts, shared::Among::Both, seed, operations)?;
    }
    for (maker, other) in [(0, 1), (1, 0)] {
        let name = format!("made-by-{maker}");
        let (here, there) = (mounts[maker].join(&name), mounts[other].join(&name));
        make(&here)?;
        alike(&here, &there).context("what one made")?;
        // The other removes, renames, links and cuts.
        for number in (0..20).step_by(2) {
            std::fs::remove_file(there.join(format!("folder/f{number}")))?;
        }
        std::fs::rename(there.join("folder/f1"), there.join("moved"))?;
        std::fs::hard_link(there.join("folder/f3"), there.join("linked"))?;
        std::fs::File::options().write(true).open(there.join("folder/f5"))?.set_len(100)?;
        std::fs::remove_file(there.join("symlink"))?;
        alike(&here, &there).context("what the other changed")?;
        std::fs::remove_dir_all(&here)?;
        until("the removed folder to go", NAMES, || !there.exists())?;
    }
    Ok(())
}

/// Makes directories in one directory by several threads of each mount at once. What each of them
/// adds to its links and entries, `fsck` counts.
fn crowd(mounts: &[PathBuf]) -> anyhow::Result<()> {
    let crowded: Vec<PathBuf> = mounts.iter().map(|mount| mount.join("crowded")).collect();
    std::fs::create_dir(&crowded[0])?;
    std::thread::scope(|scope| {
        let threads = (0..4 * crowded.len()).map(|thread| {
            let place = &crowded[thread % crowded.len()];
            let make =
                move || (0..25).try_for_each(|n| std::fs::create_dir(place.join(format!("{thread}-{n}"))));
            scope.spawn(make)
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?.context("mkdir"))
    })
}

fn make(root: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(root.join("folder/deeper"))?;
    for number in 0..20 {
        let length = if number == 7 { 9 << 20 } else { 1000 * number as usize };
        std::fs::write(root.join(format!("folder/f{number}")), pattern::bytes(number, length))?;
    }
    // Some that shrinks, over several blocks.
    std::fs::write(root.join("folder/text"), "so it goes, and so it went\n".repeat(400_000))?;
    std::os::unix::fs::symlink("folder/f1", root.join("symlink"))?;
    rustix::fs::setxattr(root.join("folder"), "user.made", b"yes", rustix::fs::XattrFlags::empty())?;
    Ok(())
}

/// The two mounts show the same tree, once their names are no older than they may be.
fn alike(here: &Path, there: &Path) -> anyhow::Result<()> {
    let sides = [here, there].map(|root| Side::new(root.to_owned(), Links::All));
    let mut seen = None;
    until("the two mounts to agree", NAMES, || {
        seen = difference(&sides[0], &sides[1]);
        seen.is_none()
    })
    .with_context(|| format!("{seen:?}"))
}
