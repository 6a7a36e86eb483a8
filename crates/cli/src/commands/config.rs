//! `sluice config`: shows or changes the settings of a volume.

use std::{
    env, fs,
    io::{self, BufRead, IsTerminal, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, Args};
use sluice_meta::{
    Interrupt, Meta,
    engine::Scan,
    ops::setting::{ChangeSetting, DropDirStats},
    quota::Counting,
    schema::{Row, Tier, VolumeFormat},
};
use sluice_object::ObjectError;

use super::hadoop::Hadoop;
use crate::{
    engines,
    progress::Progress,
    sizes,
    version::{ClientVersion, raise},
    volume,
};

/// Oldest clients that know storage tiers.
const TIER_VERSION: &str = "1.4.0-A";
/// Oldest clients that know ACLs.
const ACL_VERSION: &str = "1.2.0-A";
/// Seconds that lines of the change log are kept unless it is said.
const LOG_AGE: i64 = 7200;

/// Show the settings of a volume, or change those that are given
#[derive(Args, Default)]
#[command(after_help = "Examples:
  sluice config redis://localhost/1
  sluice config redis://localhost/1 --capacity 100 --trash-days 7")]
pub(crate) struct Config {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    pub(super) meta_url: String,
    /// Object storage driver
    #[arg(long, value_name = "DRIVER")]
    pub(super) storage: Option<String>,
    /// Bucket
    #[arg(long, value_name = "URL")]
    pub(super) bucket: Option<String>,
    /// Access key of the object storage
    #[arg(long, value_name = "KEY")]
    pub(super) access_key: Option<String>,
    /// Secret key of the object storage
    #[arg(long, value_name = "KEY")]
    pub(super) secret_key: Option<String>,
    /// Session token of the object storage
    #[arg(long, value_name = "TOKEN")]
    pub(super) session_token: Option<String>,
    /// Storage class of new objects, or of a --tier
    #[arg(long, value_name = "CLASS")]
    pub(super) storage_class: Option<String>,
    /// With --tier: tag of its objects, which only clients of JuiceFS give them
    #[arg(long, value_name = "KEY=VALUE", requires = "tier")]
    pub(super) tag: Option<String>,
    /// Set --storage-class and --tag of this storage tier, 0 to 3; 0 is that of new files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=3),
          conflicts_with_all = ["bucket", "access_key", "secret_key", "session_token"])]
    pub(super) tier: Option<u8>,
    /// Limit of each client's uploads in Mbps, 0 for none
    #[arg(long, value_name = "MBPS", allow_hyphen_values = true, value_parser = sizes::mbps)]
    pub(super) upload_limit: Option<u32>,
    /// Limit of each client's downloads in Mbps, 0 for none
    #[arg(long, value_name = "MBPS", allow_hyphen_values = true, value_parser = sizes::mbps)]
    pub(super) download_limit: Option<u32>,
    /// Limit of the volume, 0 for none; a bare number is GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = sizes::gib)]
    pub(super) capacity: Option<u64>,
    /// Limit of inodes, 0 for none
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = sizes::number)]
    pub(super) inodes: Option<u64>,
    /// Days that deleted files stay in the trash, 0 for no trash
    #[arg(long, value_name = "DAYS", allow_hyphen_values = true, value_parser = sizes::days)]
    pub(super) trash_days: Option<i64>,
    /// POSIX ACLs; they cannot be switched off again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) enable_acl: Option<bool>,
    /// Count what each directory holds
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) dir_stats: Option<bool>,
    /// Count what each user and each group uses, for limits of them
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) user_group_quota: Option<bool>,
    /// Log every change of metadata in the database, for `changelog` and programs that follow it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(super) changelog: Option<bool>,
    /// How long lines of the change log are kept, 0 for ever; 2 h if it is switched on without this
    #[arg(long, value_name = "TIME", value_parser = sizes::duration)]
    pub(super) changelog_max_age: Option<Duration>,
    /// How many lines of the change log are kept, 0 for all
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = sizes::number)]
    pub(super) changelog_max_lines: Option<u64>,
    /// Make a new key for the cache groups of the volume. Clients that are connected stay so; the
    /// key before it is accepted until the next change
    #[arg(long)]
    pub(super) change_group_key: bool,
    /// Encrypt the secrets of a volume that holds them in clear
    #[arg(long)]
    pub(super) encrypt_secret: bool,
    /// File with the RSA key (PEM) of an encrypted volume, which dumps of JuiceFS leave out
    #[arg(long, value_name = "PATH")]
    pub(super) encrypt_rsa_key: Option<PathBuf>,
    /// Oldest version of JuiceFS that may use the volume; it can only rise
    #[arg(long, value_name = "VERSION")]
    pub(super) min_client_version: Option<String>,
    /// Newest version of JuiceFS that may use the volume
    #[arg(long, value_name = "VERSION")]
    pub(super) max_client_version: Option<String>,
    /// Answer yes to every question
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Change it without trying the storage, without comparing limits with what is used, and
    /// without questions
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) hadoop: Hadoop,
}

impl Config {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let engine = engines::open(&self.meta_url)?;
        let old = volume::format_of(engine.as_ref())?;
        old.check()?;
        let new = self.changed(&old)?;
        if self.change_group_key {
            let meta = volume::open_meta(&self.meta_url, "config", false)?;
            let changed = meta.change_group_key(&Interrupt::never());
            meta.close()?;
            outln!("cache groups: key {} is in use", changed?.newest.number);
            if new == old {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if new == old {
            outln!("{}", old.masked().to_json());
            return Ok(ExitCode::SUCCESS);
        }
        ensure!(
            old.change_log || !new.change_log || engine.change_log().is_some(),
            "{} keeps no change log: JuiceFS, whose form it has, has none there; keep the metadata in another database",
            engine.name()
        );
        self.check_store(&old, &new)?;
        self.confirm(&old, &new)?;
        let meta = volume::open_meta(&self.meta_url, "config", false)?;
        let changed = self.change(&meta, &old, &new);
        meta.close()?;
        changed?;
        for change in changes(&old, &new) {
            outln!("{change}");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The settings as the arguments want them.
    pub(super) fn changed(&self, old: &VolumeFormat) -> Result<VolumeFormat> {
        let mut new = old.clone();
        let set = |field: &mut String, given: &Option<String>| {
            if let Some(value) = given {
                field.clone_from(value);
            }
        };
        set(&mut new.storage, &self.storage);
        if let Some(bucket) = &self.bucket {
            new.bucket = volume::bucket_of(&new.storage, bucket)?;
        }
        set(&mut new.access_key, &self.access_key);
        if let Some(tier) = self.tier {
            self.set_tier(&mut new, tier)?;
        } else if let Some(class) = &self.storage_class {
            match new.tiers.get_mut("0") {
                Some(tier) => tier.storage_class.clone_from(class),
                None => new.storage_class.clone_from(class),
            }
        }
        self.set_secrets(&mut new)?;
        new.upload_limit = self.upload_limit.map_or(new.upload_limit, i64::from);
        new.download_limit = self.download_limit.map_or(new.download_limit, i64::from);
        new.capacity = self.capacity.unwrap_or(new.capacity);
        new.inodes = self.inodes.unwrap_or(new.inodes);
        new.trash_days = self.trash_days.unwrap_or(new.trash_days);
        new.dir_stats = self.dir_stats.unwrap_or(new.dir_stats);
        new.user_group_quota = self.user_group_quota.unwrap_or(new.user_group_quota);
        match self.enable_acl {
            Some(false) if old.enable_acl => bail!("ACLs cannot be switched off: files have them already"),
            Some(wanted) => new.enable_acl = wanted,
            None => {}
        }
        self.set_change_log(&mut new);
        self.hadoop.apply(&mut new)?;
        self.set_versions(&mut new)?;
        Ok(new)
    }

    /// Changes a storage tier, or makes it.
    fn set_tier(&self, new: &mut VolumeFormat, id: u8) -> Result<()> {
        ensure!(
            self.storage_class.is_some() || self.tag.is_some(),
            "--tier {id} sets nothing without --storage-class or --tag"
        );
        ensure!(new.shards <= 1, "a volume with {} buckets has no storage tiers", new.shards);
        if new.tiers.is_empty() {
            let first = Tier { storage_class: new.storage_class.clone(), ..Tier::default() };
            new.tiers.insert("0".into(), first);
        }
        let tier = new.tiers.entry(id.to_string()).or_insert_with(|| Tier { id, ..Tier::default() });
        if let Some(class) = &self.storage_class {
            tier.storage_class.clone_from(class);
        }
        if let Some(tag) = &self.tag {
            let parts: Vec<_> = tag.split('=').collect();
            let sound =
                tag.is_empty() || matches!(parts[..], [key, value] if !key.is_empty() && !value.is_empty());
            ensure!(sound, "the tag {tag} is not KEY=VALUE");
            tier.tag.clone_from(tag);
        }
        raise(&mut new.min_client_version, TIER_VERSION)
    }

    fn set_change_log(&self, new: &mut VolumeFormat) {
        let begins = self.changelog == Some(true) && !new.change_log;
        new.change_log = self.changelog.unwrap_or(new.change_log);
        match self.changelog_max_age {
            Some(age) => new.change_log_max_age = age.as_secs() as i64,
            // A log that nobody trims fills the database.
            None if begins && new.change_log_max_age == 0 => new.change_log_max_age = LOG_AGE,
            None => {}
        }
        new.change_log_max_lines =
            self.changelog_max_lines.map_or(new.change_log_max_lines, |lines| lines as i64);
    }

    /// Secrets go in sealed, unless the volume holds others in clear.
    fn set_secrets(&self, new: &mut VolumeFormat) -> Result<()> {
        let uuid = new.uuid.clone();
        let seal = |secret: &str| -> Result<String> {
            if secret.is_empty() {
                Ok(String::new())
            } else {
                Ok(sluice_object::crypto::seal_secret(&uuid, secret)?)
            }
        };
        let none =
            [&new.secret_key, &new.session_token, &new.encrypt_key].iter().all(|secret| secret.is_empty());
        let given = self.secret_key.is_some() || self.session_token.is_some();
        if !new.key_encrypted && (self.encrypt_secret || none && given) {
            for secret in [&mut new.secret_key, &mut new.session_token, &mut new.encrypt_key] {
                *secret = seal(secret)?;
            }
            new.key_encrypted = !none || given;
        }
        let store = |text: &str| if new.key_encrypted { seal(text) } else { Ok(text.to_owned()) };
        let secret_key = self.secret_key.as_deref().map(store).transpose()?;
        let session_token = self.session_token.as_deref().map(store).transpose()?;
        if let Some(path) = &self.encrypt_rsa_key {
            ensure!(
                new.encrypt_key == "removed",
                "the volume has its key, or is not encrypted; --encrypt-rsa-key puts back what a dump left out"
            );
            let pem = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            new.encrypt_key = store(&pem)?;
        }
        new.secret_key = secret_key.unwrap_or_else(|| std::mem::take(&mut new.secret_key));
        new.session_token = session_token.unwrap_or_else(|| std::mem::take(&mut new.session_token));
        Ok(())
    }

    fn set_versions(&self, new: &mut VolumeFormat) -> Result<()> {
        if let Some(text) = &self.min_client_version {
            let wanted: ClientVersion = text.parse()?;
            let current = &new.min_client_version;
            if !current.is_empty() && wanted < current.parse()? {
                bail!("the oldest client version can only rise; it is {current}");
            }
            new.min_client_version.clone_from(text);
        }
        if let Some(text) = &self.max_client_version {
            if !text.is_empty() {
                text.parse::<ClientVersion>()?;
            }
            new.max_client_version.clone_from(text);
        }
        if new.enable_acl {
            raise(&mut new.min_client_version, ACL_VERSION)?;
        }
        if !new.max_client_version.is_empty() && !new.min_client_version.is_empty() {
            let (oldest, newest): (ClientVersion, ClientVersion) =
                (new.min_client_version.parse()?, new.max_client_version.parse()?);
            ensure!(
                oldest <= newest,
                "no client is both {} or newer and {} or older",
                new.min_client_version,
                new.max_client_version
            );
        }
        Ok(())
    }

    /// Tries an object storage that is new to the volume.
    fn check_store(&self, old: &VolumeFormat, new: &VolumeFormat) -> Result<()> {
        if self.encrypt_rsa_key.is_some() && !self.force {
            check_key(new)?;
        }
        let place = |format: &VolumeFormat| {
            let VolumeFormat { storage, bucket, access_key, secret_key, session_token, .. } = format.clone();
            (storage, bucket, access_key, secret_key, session_token)
        };
        if self.force || place(old) == place(new) || env::var_os("JFS_NO_CHECK_OBJECT_STORAGE").is_some() {
            return Ok(());
        }
        let store = volume::open_store(new)?;
        let tried = volume::runtime()?.block_on(sluice_object::probe(store.as_ref()));
        tried.with_context(|| format!("{} does not work; --force sets it all the same", store.describe()))
    }

    /// Asks before what cannot be taken back.
    fn confirm(&self, old: &VolumeFormat, new: &VolumeFormat) -> Result<()> {
        let mut questions = Vec::new();
        if new.trash_days < old.trash_days {
            questions.push(format!(
                "what has been in the trash for more than {} days will be deleted for good",
                new.trash_days
            ));
        }
        if new.min_client_version != old.min_client_version {
            questions.push(format!(
                "clients older than {} will not be able to use the volume",
                new.min_client_version
            ));
        }
        if new.enable_acl && !old.enable_acl {
            questions.push("ACLs cannot be switched off again".into());
        }
        for question in questions {
            if self.yes || self.force {
                continue;
            }
            ensure!(io::stdin().is_terminal(), "{question}; say --yes if that is meant");
            out!("{question}. Proceed? [y/N] ");
            io::stdout().flush()?;
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer)?;
            ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was changed");
        }
        Ok(())
    }

    fn change(&self, meta: &Meta, old: &VolumeFormat, new: &VolumeFormat) -> Result<()> {
        let (space, inodes) = meta.env().used();
        let full = |limit: u64, before: u64, used: i64| limit > 0 && limit != before && used > limit as i64;
        if !self.force && (full(new.capacity, old.capacity, space) || full(new.inodes, old.inodes, inodes)) {
            bail!(
                "the volume already holds {space} bytes in {inodes} inodes; --force sets a lower limit all the same"
            );
        }
        let never = Interrupt::never();
        if new.dir_stats && !old.dir_stats {
            meta.each_page(Scan::DirStats, &never, |rows| {
                let dirs = rows.into_iter().filter_map(|row| match row {
                    Row::DirStat(dir, _) => Some(dir),
                    _ => None,
                });
                meta.run(DropDirStats(dirs.collect()), &never)
            })?;
        }
        let change = ChangeSetting { old: old.clone(), new: new.clone() };
        meta.run(change, &never)
            .context("somebody else has just changed the settings; look at them and try again")?;
        if new.user_group_quota && !old.user_group_quota {
            count_owners(meta)?;
        }
        Ok(())
    }
}

/// Refuses a key that does not open what the volume has in its store.
fn check_key(format: &VolumeFormat) -> Result<()> {
    let store = volume::open_store(format)?;
    match volume::runtime()?.block_on(store.get(volume::UUID_OBJECT, None)) {
        // Older volumes have none.
        Err(ObjectError::NotFound { .. }) => Ok(()),
        found => {
            let found =
                found.context("the key does not open what the volume has stored; give its own key")?;
            ensure!(
                found == format.uuid.as_bytes(),
                "{} holds the objects of another volume; correct --bucket",
                store.describe()
            );
            Ok(())
        }
    }
}

/// Counts what users and groups have already.
fn count_owners(meta: &Meta) -> Result<()> {
    let progress = Progress::new("counted entries", None);
    let (interrupt, add) = (Interrupt::never(), |done| progress.add(done));
    let counting = Counting { strict: true, interrupt: &interrupt, progress: &add };
    let waiting = |others| {
        progress.say(format_args!("{others} other clients have to learn of it; that takes up to a minute"));
    };
    let settled = meta.count_owners(&counting, &waiting);
    progress.finish();
    if !settled? {
        errln!(
            "others changed too much to count it exactly; run `sluice quota check --repair` at a quieter time"
        );
    }
    Ok(())
}

/// Each member that is different now, as `name: old -> new`.
pub(super) fn changes(old: &VolumeFormat, new: &VolumeFormat) -> Vec<String> {
    let members = |format: &VolumeFormat| serde_json::to_value(format.masked()).unwrap_or_default();
    let (before, after) = (members(old), members(new));
    let empty = serde_json::Map::new();
    let names = before.as_object().unwrap_or(&empty).keys().chain(after.as_object().unwrap_or(&empty).keys());
    // A member that is not there says false, no limit, or nothing.
    let shown = |value: &serde_json::Value, other: &serde_json::Value| match value {
        serde_json::Value::Null if other.is_boolean() => "false".into(),
        serde_json::Value::Null => "none".into(),
        value => value.to_string(),
    };
    let (mut seen, mut changes) = (Vec::new(), Vec::new());
    for name in names {
        let (from, to) = (&before[name.as_str()], &after[name.as_str()]);
        if from != to && !seen.contains(&name) {
            changes.push(format!("{name}: {} -> {}", shown(from, to), shown(to, from)));
            seen.push(name);
        }
    }
    for (name, from, to) in [
        ("SecretKey", &old.secret_key, &new.secret_key),
        ("EncryptKey", &old.encrypt_key, &new.encrypt_key),
        ("SessionToken", &old.session_token, &new.session_token),
    ] {
        if from != to && !seen.iter().any(|seen| *seen == name) {
            changes.push(format!("{name}: changed"));
        }
    }
    changes
}
