//! `sluice quota`: limits of directories, users and groups.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{
    Args, Subcommand,
    builder::{OsStringValueParser, TypedValueParser},
};
use sluice_meta::{
    Interrupt, Meta,
    ops::{getattr::GetAttr, quota::SetLimits},
    quota::{Counting, Usage},
    schema::{Quota, QuotaKey},
};
use sluice_types::{FsError, FsResult, Ino, printable};

use crate::{progress::Progress, sizes, table, tree, volume};

/// Limit what directories, users and groups use
///
/// Example: `sluice quota set redis://localhost/1 --path /dir1 --capacity 10 --inodes 1000`. A
/// program that goes beyond a limit gets EDQUOT, "Disk quota exceeded".
#[derive(Args)]
pub(crate) struct QuotaCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Set limits. The first limits of a directory count what it holds
    ///
    /// Example: `sluice quota set redis://localhost/1 --uid 1000 --capacity 500G`. Where others
    /// have the volume mounted, this takes two of their heartbeats: they have to learn of it before
    /// what is there can be counted.
    Set(Set),
    /// Show limits and usage
    ///
    /// Example: `sluice quota get redis://localhost/1 --path /dir1`
    Get(Get),
    /// Take limits away
    ///
    /// Example: `sluice quota delete redis://localhost/1 --gid 100`
    #[command(visible_alias = "del")]
    Delete(Get),
    /// Show the limits and the usage of all that are limited
    ///
    /// Example: `sluice quota list redis://localhost/1`
    #[command(visible_alias = "ls")]
    List(Get),
    /// Count again, and compare with what is on record; all quotas if none is named
    ///
    /// Example: `sluice quota check redis://localhost/1 --path /dir1 --repair`. Fails if something
    /// differs and is not repaired.
    Check(Check),
}

/// Which quota.
#[derive(Args)]
#[group(multiple = false)]
struct Which {
    /// The directory, from the root of the volume
    #[arg(long, value_name = "PATH", value_parser = OsStringValueParser::new().try_map(not_empty))]
    path: Option<OsString>,
    /// The user
    #[arg(long, value_name = "UID", allow_hyphen_values = true, value_parser = user)]
    uid: Option<u32>,
    /// The group
    #[arg(long, value_name = "GID", allow_hyphen_values = true, value_parser = number)]
    gid: Option<u32>,
}

#[derive(Args)]
struct Get {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
struct Set {
    #[command(flatten)]
    get: Get,
    /// Bytes allowed, 0 for no limit; a bare number is GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = sizes::gib)]
    capacity: Option<u64>,
    /// Files, directories and all else allowed, 0 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = inodes)]
    inodes: Option<i64>,
    /// Make the directory if it is missing
    #[arg(long, requires = "path")]
    create: bool,
    /// Count entry by entry, and not by the statistics of directories; slow
    #[arg(long)]
    strict: bool,
}

#[derive(Args)]
struct Check {
    #[command(flatten)]
    get: Get,
    /// Put on record what was counted
    #[arg(long)]
    repair: bool,
    /// Count entry by entry, and not by the statistics of directories; slow
    #[arg(long)]
    strict: bool,
}

fn not_empty(path: OsString) -> Result<OsString, &'static str> {
    if path.is_empty() { Err("the path is empty; say / for the whole volume") } else { Ok(path) }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is no id: write a number from 0 to {}", u32::MAX))
}

fn user(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err("the superuser has no quota".into()),
        uid => Ok(uid),
    }
}

fn inodes(text: &str) -> Result<i64, String> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("{text} is too large: the most is {}", i64::MAX)
        } else {
            format!("{text} is no number of inodes: write one from 0 on, such as 1000")
        }
    })
}

impl QuotaCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Set(set) => set.run(),
            Action::Get(get) => get.show(),
            Action::Delete(get) => get.delete(),
            Action::List(get) => get.list(),
            Action::Check(check) => check.run(),
        }
    }
}

impl Which {
    /// The quota named, if one is.
    fn key(&self, meta: &Meta) -> Result<Option<QuotaKey>> {
        Ok(match self {
            Self { path: Some(path), .. } => Some(QuotaKey::Dir(directory(meta, path)?)),
            Self { uid: Some(uid), .. } => Some(QuotaKey::User(*uid)),
            Self { gid: Some(gid), .. } => Some(QuotaKey::Group(*gid)),
            _ => None,
        })
    }

    /// As messages name whose quota it is.
    fn whose(&self) -> String {
        match self {
            Self { path: Some(path), .. } => shown(path),
            Self { uid: Some(uid), .. } => format!("user {uid}"),
            Self { gid: Some(gid), .. } => format!("group {gid}"),
            _ => "anybody".into(),
        }
    }

    fn missing(&self) -> String {
        format!("there is no quota on {}", self.whose())
    }

    fn named(&self) -> Result<()> {
        let named = self.path.is_some() || self.uid.is_some() || self.gid.is_some();
        ensure!(named, "say whose quota: --path DIR, --uid UID or --gid GID");
        Ok(())
    }
}

fn directory(meta: &Meta, path: &OsStr) -> Result<Ino> {
    let shown = shown(path);
    let missing = || format!("there is no {shown} in the volume; --path starts at its root");
    let dir = tree::find(meta, path).with_context(|| shown.clone())?.with_context(missing)?;
    let attr = meta.read(&GetAttr(dir), &Interrupt::never())?;
    ensure!(attr.is_dir(), "{shown} is no directory, and only directories have quotas");
    ensure!(!dir.is_trash(), "{shown} is in the trash, which has no quotas");
    Ok(dir)
}

/// Opens the volume, and closes it whatever `work` answers.
fn on_volume<T>(url: &str, read_only: bool, work: impl FnOnce(&Meta) -> Result<T>) -> Result<T> {
    let meta = volume::open_meta(url, "quota", read_only)?;
    ensure!(
        read_only || !meta.is_read_only(),
        "the volume uses what this version does not maintain; change its quotas with a client that does"
    );
    let done = work(&meta);
    meta.close()?;
    done
}

impl Get {
    fn show(&self) -> Result<ExitCode> {
        self.which.named()?;
        on_volume(&self.meta_url, true, |meta| {
            let key = self.which.key(meta)?.context("say whose quota")?;
            let quota = meta.quota(key, &Interrupt::never())?.with_context(|| self.which.missing())?;
            print(meta, &[(key, quota)])?;
            Ok(ExitCode::SUCCESS)
        })
    }

    fn delete(&self) -> Result<ExitCode> {
        self.which.named()?;
        on_volume(&self.meta_url, false, |meta| {
            let key = self.which.key(meta)?.context("say whose quota")?;
            if !meta.delete_quota(key, &Interrupt::never())? {
                // As JuiceFS: what is to be gone is gone.
                errln!("{}", self.which.missing());
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    fn list(&self) -> Result<ExitCode> {
        on_volume(&self.meta_url, true, |meta| {
            let only = self.which.key(meta)?;
            let mut quotas = meta.quotas(&Interrupt::never())?;
            quotas.retain(|(key, quota)| {
                only.is_none_or(|only| only == *key) && (quota.max_space != -1 || quota.max_inodes != -1)
            });
            if quotas.is_empty() {
                errln!("there are no quotas");
            } else {
                print(meta, &quotas)?;
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Set {
    fn run(&self) -> Result<ExitCode> {
        let Self { get, capacity, inodes, create, strict } = self;
        get.which.named()?;
        ensure!(
            capacity.is_some() || inodes.is_some(),
            "there is nothing to set: give --capacity, --inodes or both (0 for no limit)"
        );
        on_volume(&get.meta_url, false, |meta| {
            if let (true, Some(path)) = (create, &get.which.path) {
                tree::directory(meta, path).with_context(|| format!("{} cannot be made", shown(path)))?;
            }
            let key = get.which.key(meta)?.context("say whose quota")?;
            let limits =
                SetLimits { key, max_space: capacity.map(|bytes| bytes as i64), max_inodes: *inodes };
            let set = counted(*strict, |counting, progress| {
                meta.set_quota(limits, counting, &|others| {
                    progress.say(format_args!(
                        "the limits are set; waiting until {others} other clients know them, then what is there is \
                         counted again"
                    ));
                })
            })?;
            print(meta, &[(key, set.quota)])?;
            if !set.settled {
                errln!(
                    "others changed too much to count it exactly, or did not show that they live; run `sluice quota \
                     check --repair` at a quieter time"
                );
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Counts, and shows how far it has come.
fn counted<T>(strict: bool, count: impl FnOnce(&Counting<'_>, &Progress) -> FsResult<T>) -> FsResult<T> {
    let progress = Progress::new(if strict { "counted entries" } else { "counted" }, None);
    let (interrupt, add) = (Interrupt::never(), |done| progress.add(done));
    let done = count(&Counting { strict, interrupt: &interrupt, progress: &add }, &progress);
    progress.finish();
    done
}

impl Check {
    fn run(&self) -> Result<ExitCode> {
        on_volume(&self.get.meta_url, !self.repair, |meta| {
            let only = self.get.which.key(meta)?;
            let mut dirs: Vec<(QuotaKey, Ino)> = Vec::new();
            for (key, _) in meta.quotas(&Interrupt::never())? {
                if let QuotaKey::Dir(dir) = key
                    && only.is_none_or(|only| only == key)
                {
                    dirs.push((key, dir));
                }
            }
            if matches!(only, Some(QuotaKey::Dir(_))) && dirs.is_empty() {
                bail!("{}", self.get.which.missing());
            }
            let mut agree = Vec::new();
            let (mut wrong, mut reported) = (0, 0);
            for (key, dir) in dirs {
                match counted(self.strict, |counting, _| self.dir(meta, dir, counting)) {
                    Ok(usage) => wrong += usize::from(!tell(meta, &usage, self.repair, &mut agree)?),
                    Err(FsError::NotFound) => wrong += usize::from(!self.gone(meta, key)?),
                    // It was deleted meanwhile.
                    Err(FsError::NoData) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !matches!(only, Some(QuotaKey::Dir(_))) && meta.env().format().user_group_quota {
                let usage =
                    counted(self.strict, |counting, _| meta.check_owner_quotas(self.repair, counting))?;
                for usage in usage.iter().filter(|usage| only.is_none_or(|only| only == usage.key)) {
                    reported += 1;
                    wrong += usize::from(!tell(meta, usage, self.repair, &mut agree)?);
                }
            }
            if only.is_some_and(|only| !matches!(only, QuotaKey::Dir(_))) && reported == 0 {
                bail!("{}", self.get.which.missing());
            }
            if !agree.is_empty() {
                print(meta, &agree)?;
            }
            ensure!(wrong == 0, "{wrong} quotas differ from what was counted; --repair puts them right");
            Ok(ExitCode::SUCCESS)
        })
    }

    fn dir(&self, meta: &Meta, dir: Ino, counting: &Counting<'_>) -> FsResult<Usage> {
        let (usage, is_exact) = meta.check_dir_quota(dir, self.repair, counting)?;
        if self.repair && !is_exact {
            errln!("others changed too much to count it exactly; check again at a quieter time");
        }
        Ok(usage)
    }

    /// What is to be done about the quota of a directory that is gone; whether it was done.
    fn gone(&self, meta: &Meta, key: QuotaKey) -> Result<bool> {
        errln!("{}: there is no such directory any more", name(meta, key)?);
        if self.repair {
            meta.delete_quota(key, &Interrupt::never())?;
        }
        Ok(self.repair)
    }
}

/// Tells of a difference; whether there is none, or none any more. What is on record then goes into
/// `agree`.
fn tell(meta: &Meta, usage: &Usage, repaired: bool, agree: &mut Vec<(QuotaKey, Quota)>) -> Result<bool> {
    let same = usage.difference() == (0, 0);
    if !same {
        let stored = usage.stored.unwrap_or_default();
        errln!(
            "{}: on record are {} ({} bytes) in {} inodes, counted were {} ({} bytes) in {}",
            name(meta, usage.key)?,
            amount(stored.used_space),
            stored.used_space,
            stored.used_inodes,
            amount(usage.counted.0),
            usage.counted.0,
            usage.counted.1
        );
    }
    if same || repaired {
        let now = meta.quota(usage.key, &Interrupt::never())?;
        agree.extend(now.map(|quota| (usage.key, quota)));
    }
    Ok(same || repaired)
}

fn amount(bytes: i64) -> String {
    if bytes < 0 { format!("-{}", sizes::human(bytes.unsigned_abs())) } else { sizes::human(bytes as u64) }
}

fn shown(path: &OsStr) -> String {
    printable(Path::new(path).display())
}

fn name(meta: &Meta, key: QuotaKey) -> Result<String> {
    Ok(match key {
        QuotaKey::Dir(dir) => {
            let paths = meta.paths_of(dir, Ino::ROOT, &Interrupt::never())?;
            paths.into_iter().next().map_or_else(|| format!("inode:{dir}"), printable)
        }
        QuotaKey::User(uid) => format!("uid:{uid}"),
        QuotaKey::Group(gid) => format!("gid:{gid}"),
    })
}

fn print(meta: &Meta, quotas: &[(QuotaKey, Quota)]) -> Result<()> {
    let first = match quotas {
        [(QuotaKey::User(_), _)] => "User ID",
        [(QuotaKey::Group(_), _)] => "Group ID",
        all if all.iter().all(|(key, _)| matches!(key, QuotaKey::Dir(_))) => "Path",
        _ => "Path/ID",
    };
    let mut rows = Vec::with_capacity(quotas.len());
    for (key, quota) in quotas {
        let limit = |limit: i64, shown: String| if limit > 0 { shown } else { "unlimited".into() };
        let share = |limit: i64, used: i64| {
            if limit > 0 { format!("{}%", i128::from(used) * 100 / i128::from(limit)) } else { String::new() }
        };
        rows.push(vec![
            name(meta, *key)?,
            limit(quota.max_space, amount(quota.max_space)),
            amount(quota.used_space),
            share(quota.max_space, quota.used_space),
            limit(quota.max_inodes, quota.max_inodes.to_string()),
            quota.used_inodes.to_string(),
            share(quota.max_inodes, quota.used_inodes),
        ]);
    }
    rows.sort_unstable();
    let head = [first, "Size", "Used", "Use%", "Inodes", "IUsed", "IUse%"].map(String::from);
    rows.insert(0, head.into());
    table::print(&rows, &[0]);
    Ok(())
}
