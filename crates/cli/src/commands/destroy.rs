//! `sluice destroy`: deletes a volume, with all its objects and all its metadata.
//!
//! What must stay true: only objects below the volume's prefix are deleted. The settings are
//! deleted last, so that the command can be repeated after an interruption.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::TryStreamExt;
use sluice_meta::{Meta, Options, engine::Scan, schema::Row};
use sluice_object::{ObjectError, ObjectMeta, ObjectStore};
use sluice_types::{Clock, Interrupt, SystemClock};

use crate::{engines, progress::Progress, signals, volume};

/// Objects deleted at once.
const AT_ONCE: usize = 32;
/// Failures after which it stops.
const MOST_FAILED: u64 = 100;

/// Delete a volume: all its objects, and all its metadata
///
/// This cannot be undone. Unmount the volume everywhere first.
///
/// Example: `sluice destroy redis://localhost/1 e94d66a8-2339-4abd-b8d8-6812df737892`
#[derive(Args)]
pub(crate) struct Destroy {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// The volume's UUID, as `sluice status` shows it
    #[arg(value_name = "UUID")]
    uuid: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Neither ask nor look for clients that use the volume, and go on if its bucket does not exist
    #[arg(long)]
    force: bool,
}

impl Destroy {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let engine = engines::open(&self.meta_url)?;
        let format = volume::format_of(engine.as_ref())?;
        ensure!(
            self.uuid == format.uuid,
            "the volume in this database is {} and has the UUID {}, not {}; nothing was deleted",
            format.name,
            format.uuid,
            self.uuid
        );
        let store = sluice_object::open(&volume::store_config(&format)?)?;
        let opened = Meta::open(engine.clone(), Options { read_only: true, ..Options::default() });
        let used = if self.force {
            // With --force, the metadata need not be readable.
            opened.ok().map_or(0, |meta| meta.env().used().0)
        } else {
            let meta = opened?;
            refuse_sessions(&meta)?;
            let (used, inodes) = meta.env().used();
            outln!(" volume name: {}", format.name);
            outln!(" volume UUID: {}", format.uuid);
            outln!("data storage: {}", store.describe());
            outln!("  used bytes: {used}");
            outln!(" used inodes: {inodes}");
            errln!(
                "The volume will be destroyed for good: all objects in {}, and all its metadata.",
                store.describe()
            );
            if !self.yes && !confirmed()? {
                bail!("aborted; nothing was deleted");
            }
            used
        };
        self.delete_objects(&store, used)?;
        engine
            .remove_volume()
            .context("the objects are deleted, but not all metadata; begin destroy again")?;
        outln!("the volume {} is destroyed; its cache directories on clients are still there", format.name);
        Ok(ExitCode::SUCCESS)
    }

    /// Deletes all objects. Their number is known only when all are listed. So the bar counts
    /// bytes, out of the `used` bytes of all files. Compression, clones and holes make them fewer.
    fn delete_objects(&self, store: &Arc<dyn ObjectStore>, used: i64) -> Result<()> {
        let interrupt = signals::interrupt()?;
        let progress = Progress::bytes("delete objects", u64::try_from(used).ok().filter(|used| *used > 0));
        let deletion = async {
            let delete = |ObjectMeta { key, size, .. }: ObjectMeta| async move {
                let deleted = store.delete(&key).await;
                if let Err(error) = &deleted {
                    tracing::warn!(%error, "an object could not be deleted");
                }
                Ok::<_, ObjectError>((deleted.is_ok(), size))
            };
            let listed = store.list("").map_ok(delete);
            let mut deleted = listed.try_buffer_unordered(AT_ONCE);
            let (mut found, mut failed) = (0_u64, 0);
            while let Some(done) = deleted.try_next().await.transpose() {
                let (deleted, size) = done?;
                found += 1;
                failed += u64::from(!deleted);
                progress.add(if deleted { size } else { 0 });
                ensure!(failed < MOST_FAILED, "{failed} objects could not be deleted");
                ensure!(!interrupt.is_set(), "interrupted; some objects are deleted, the metadata is not");
            }
            ensure!(failed == 0, "{failed} objects could not be deleted");
            // A disk that is not mounted looks like an empty store.
            ensure!(
                found > 0 || used <= 0 || self.force,
                "there are none, although the volume has {used} bytes; if that is the right place, and its disk is \
                 mounted, --force removes the metadata"
            );
            Ok(())
        };
        let done = volume::runtime()?.block_on(deletion);
        progress.finish();
        let Err(error) = done else { return Ok(()) };
        let no_bucket = matches!(error.downcast_ref(), Some(ObjectError::Config { .. }));
        if no_bucket && self.force {
            tracing::warn!("the objects are left alone: {error:#}");
            return Ok(());
        }
        let advice =
            if no_bucket { "; --force removes the metadata all the same" } else { "; begin destroy again" };
        Err(error
            .context(format!("not all objects in {} are deleted, and no metadata{advice}", store.describe())))
    }
}

/// Fails if anybody has the volume open.
fn refuse_sessions(meta: &Meta) -> Result<()> {
    let (now, mut active) = (SystemClock.now().sec, Vec::new());
    meta.each_page(Scan::Sessions, &Interrupt::never(), |rows| {
        for row in rows {
            if let Row::Session(sid, session) = row
                && session.expire >= now
            {
                let who = session.who();
                let place = who
                    .map_or_else(String::new, |who| format!(" on {} at {}", who.host_name, who.mount_point));
                active.push(format!("session {sid}{place}"));
            }
        }
        Ok(())
    })?;
    ensure!(
        active.is_empty(),
        "the volume is in use; unmount it everywhere first, or wait until clients that died have expired: {}",
        active.join(", ")
    );
    Ok(())
}

/// Whether the user at the terminal confirms.
fn confirmed() -> Result<bool> {
    ensure!(
        io::stdin().is_terminal(),
        "there is nobody to ask; --yes destroys the volume without a question"
    );
    out!("Go on? [y/N]: ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
