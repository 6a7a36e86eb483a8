//! The change log: the same work by each program, on a volume with a log, gives the same lines, and
//! each reads what the other wrote.

use crate::rig::{Engine, Volume, command};
use anyhow::{Context, bail, ensure};
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// How long a program may take to print the log.
const TIMEOUT: Duration = Duration::from_mins(1);
/// What the work makes last.
const END: &str = "the-end";

/// What the arguments and the result of a line are: an inode (`i`), one of the trash or 0 (`t`),
/// what must be the same (`k`), or what each program chooses, as the time (`-`). JuiceFS counts the
/// records of a chunk on some engines, and on some names a trash to which nothing moved.
const FORMS: [(&str, &str); 15] = [
    ("CREATE", "ikkkkkkkk-i"),
    ("UNLINK", "iktk-i"),
    ("RMDIR", "ikti"),
    ("MOVE", "ikikki-i"),
    ("LINK", "iik-k"),
    ("WRITE", "ikk-k---"),
    ("TRUNCATE", "ikkk"),
    ("FALLOCATE", "ikkk"),
    ("COPYFILERANGE", "ikikkk"),
    ("SETATTR", "ikkkkkk------k"),
    ("SETXATTR", "ikkk"),
    ("REMOVEXATTR", "ik"),
    ("FLOCK", "i-k"),
    ("SETLK", "i-kkk-"),
    ("DELSUSTAINED", "-i"),
];

pub(super) fn run([sluice, juicefs]: [&Path; 2], engine: Engine, within: &Path) -> anyhow::Result<()> {
    let mut said = Vec::new();
    for program in [sluice, juicefs] {
        let mut volume = Volume::new(program, engine, within, &["--trash-days", "1"])?;
        let switched = command(program, &["config", &volume.meta, "--changelog", "--yes"]);
        if engine == Engine::Etcd {
            // JuiceFS takes the flag, and keeps no log.
            ensure!(program == juicefs || switched.is_err(), "a log on etcd");
            continue;
        }
        switched?;
        let mount = volume.mount(&[])?;
        work(&mount).with_context(|| format!("the mount said:\n{}", volume.log()))?;
        volume.unmount()?;
        let read = [sluice, juicefs].map(|reader| printed(reader, &volume.meta));
        let [ours, theirs] = read;
        let (ours, theirs) = (ours?, theirs?);
        ensure!(ours == theirs, "of one log they print\n{ours:#?}\nand\n{theirs:#?}");
        said.push(reported(&ours)?);
        // Switched off it is a volume as any other.
        command(program, &["config", &volume.meta, "--changelog=false", "--yes"])?;
        for program in [sluice, juicefs] {
            volume.fsck_by(program).with_context(|| format!("fsck of {}", program.display()))?;
        }
    }
    if let [ours, theirs] = &said[..] {
        ensure!(ours == theirs, "of the same work they say\n{ours:#?}\nand\n{theirs:#?}");
    }
    Ok(())
}

/// Work whose lines do not depend on how fast it goes.
fn work(root: &Path) -> anyhow::Result<()> {
    fs::create_dir(root.join("dir"))?;
    let path = root.join("dir/a, (100%)");
    let file = File::create(&path)?;
    file.write_all_at(&vec![1; 100_000], 0)?;
    file.sync_all()?;
    file.write_all_at(&[2; 10], 5_000)?;
    file.sync_all()?;
    file.set_len(40_000)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 50_000)?;
    let both = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, both, 4096, 8192)?;
    drop(file);
    symlink("dir/a", root.join("link"))?;
    fs::hard_link(&path, root.join("hard"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
    std::os::unix::fs::chown(&path, Some(7), Some(8))?;
    rustix::fs::setxattr(&path, "user.x", b"\0(v)", rustix::fs::XattrFlags::CREATE)?;
    rustix::fs::removexattr(&path, "user.x")?;
    let locked = OpenOptions::new().read(true).write(true).open(&path)?;
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive)?;
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::Unlock)?;
    drop(locked);
    fs::write(root.join("over"), "x")?;
    fs::write(root.join("under"), "y")?;
    fs::rename(root.join("over"), root.join("under"))?;
    let (one, other) = (root.join("hard"), root.join("under"));
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, &one, cwd, &other, rustix::fs::RenameFlags::EXCHANGE)?;
    let mut kept = OpenOptions::new().append(true).open(root.join("hard"))?;
    kept.write_all(b"z")?;
    kept.sync_all()?;
    fs::remove_file(root.join("hard"))?;
    drop(kept);
    fs::remove_file(root.join("link"))?;
    fs::create_dir(root.join("dir/empty"))?;
    fs::remove_dir(root.join("dir/empty"))?;
    fs::create_dir(root.join(END))?;
    Ok(())
}

/// The lines that `program` prints of the log, up to the last of the work.
fn printed(program: &Path, meta: &str) -> anyhow::Result<Vec<String>> {
    let mut child = Command::new(program)
        .args(["changelog", meta, "--from", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().context("a pipe")?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut all = Vec::new();
    let ended = loop {
        match lines.recv_timeout(TIMEOUT) {
            Ok(line) => {
                // The database library of JuiceFS prints here, too.
                if !line.starts_with(|first: char| first.is_ascii_digit()) {
                    continue;
                }
                let last = line.contains(END);
                all.push(line);
                if last {
                    break Ok(());
                }
            }
            Err(error) => break Err(error),
        }
    };
    child.kill()?;
    child.wait()?;
    drop(lines);
    drop(reader.join());
    ended.with_context(|| format!("{} prints only {all:#?}", program.display()))?;
    Ok(all)
}

/// What lines say of the work: without what each program chooses, and with the inodes numbered as
/// they come.
fn reported(lines: &[String]) -> anyhow::Result<Vec<String>> {
    let mut inodes: HashMap<String, usize> = HashMap::new();
    let mut reported: Vec<String> = Vec::new();
    for line in lines {
        let [_, said, _] = line.split('|').collect::<Vec<_>>()[..] else { bail!("no line of a log: {line}") };
        let (name, rest) = said.split_once('(').with_context(|| format!("no operation: {line}"))?;
        let Some((_, form)) = FORMS.iter().find(|(known, _)| *known == name) else { continue };
        let (arguments, result) = rest.rsplit_once(')').with_context(|| format!("no arguments: {line}"))?;
        let values: Vec<&str> = arguments.split(',').chain(result.strip_prefix(':')).collect();
        ensure!(values.len() == form.len(), "{} values instead of {}: {line}", values.len(), form.len());
        let mut shown = vec![name.to_owned()];
        for (value, kind) in values.into_iter().zip(form.chars()) {
            let next = inodes.len();
            shown.push(match kind {
                'i' if value != "0" => format!("i{}", inodes.entry(value.into()).or_insert(next)),
                't' if value != "0" => "trash".into(),
                '-' => "-".into(),
                _ => value.into(),
            });
        }
        let shown = shown.join(" ");
        // An unlock may be asked for twice.
        if reported.last() != Some(&shown) {
            reported.push(shown);
        }
    }
    Ok(reported)
}
