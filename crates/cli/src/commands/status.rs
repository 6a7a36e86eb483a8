//! `sluice status`: settings, sessions and usage of a volume.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use serde_json::{Map, Value, json};
use sluice_console::Served;
use sluice_meta::{
    Interrupt, Meta,
    engine::{Engine, List, Read},
    engine::{Found, Scan},
    schema::{FlockKind, Member, Row, Session, encode_plocks},
};
use sluice_types::{Ino, Time, align4k};

use crate::{engines, volume};

/// Bytes that a volume without a limit seems to have.
const UNLIMITED_BYTES: u64 = 1 << 50;
/// Free inodes that it seems to have.
const UNLIMITED_INODES: u64 = 10 << 20;

/// Show settings, sessions and usage of a volume
#[derive(Args)]
#[command(after_help = "Example:\n  sluice status redis://localhost/1")]
pub(crate) struct Status {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Show locks and open deleted files of this session instead
    #[arg(short, long, value_name = "SID")]
    session: Option<u64>,
    /// Count what the trash and pending deletions hold, and ask the members of cache groups for
    /// their hit rates; slow
    #[arg(short, long)]
    more: bool,
}

impl Status {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let engine = engines::open(&self.meta_url)?;
        let meta =
            Meta::open(engine.clone(), sluice_meta::Options { read_only: true, ..Default::default() })?;
        let shown = match self.session {
            Some(sid) => session_details(engine.as_ref(), &meta, sid)?,
            None => self.sections(&meta)?,
        };
        outln!("{}", serde_json::to_string_pretty(&shown)?);
        Ok(ExitCode::SUCCESS)
    }

    fn sections(&self, meta: &Meta) -> Result<Value> {
        let format = meta.env().format();
        let setting: Value = serde_json::from_str(&format.masked().to_json())?;
        let sessions: Vec<Value> =
            sessions(meta)?.iter().map(|(sid, session)| Value::Object(describe(*sid, session))).collect();
        let (used, inodes) = meta.env().used();
        let (used, inodes) = (used.max(0) as u64, inodes.max(0) as u64);
        let mut total = if format.capacity > 0 { format.capacity } else { UNLIMITED_BYTES };
        while format.capacity == 0 && used > total / 10 * 8 {
            total *= 2;
        }
        let free_inodes =
            if format.inodes > 0 { format.inodes.saturating_sub(inodes) } else { UNLIMITED_INODES };
        let mut stat = Map::new();
        let mut put = |name: &str, value: u64| stat.insert(name.into(), value.into());
        put("UsedSpace", used);
        put("AvailableSpace", total.saturating_sub(used));
        put("UsedInodes", inodes);
        put("AvailableInodes", free_inodes);
        if self.more {
            for (name, value) in more(meta)? {
                put(name, value);
            }
        }
        let mut shown = json!({ "Setting": setting, "Sessions": sessions, "Stat": stat });
        let members = meta.all_members(&Interrupt::never())?.members;
        if !members.is_empty() {
            let mut served = if self.more {
                sluice_console::served(meta, &volume::host_name(), &Interrupt::never())?
            } else {
                BTreeMap::new()
            };
            let all = members.iter().map(|one| member(one, served.remove(&one.sid)));
            shown["CacheGroups"] = all.collect();
        }
        Ok(shown)
    }
}

/// A client that shares its cache, and what it served if it was asked.
fn member(member: &Member, served: Option<Result<Served, String>>) -> Value {
    let mut shown = json!({
        "Group": member.group,
        "Sid": member.sid,
        "Name": member.name,
        "Address": member.address,
        "Weight": member.weight,
        "Encrypted": member.fingerprint.is_some(),
        "Joined": Time { sec: member.joined, nsec: 0 }.utc("%Y-%m-%dT%H:%M:%SZ"),
    });
    match served {
        Some(Ok(served)) => {
            shown["CacheBytes"] = served.cache_bytes.into();
            shown["ServedBytes"] = served.served_bytes.into();
            shown["HitRate"] = served.hit_rate().into();
        }
        Some(Err(reason)) => shown["NoMetrics"] = reason.into(),
        None => {}
    }
    shown
}

/// All sessions, by id.
fn sessions(meta: &Meta) -> Result<Vec<(u64, Session)>> {
    let mut found = Vec::new();
    meta.each_page(Scan::Sessions, &Interrupt::never(), |rows| {
        found.extend(rows.into_iter().filter_map(|row| match row {
            Row::Session(sid, session) => Some((sid, session)),
            _ => None,
        }));
        Ok(())
    })?;
    found.sort_by_key(|(sid, _)| *sid);
    Ok(found)
}

fn describe(sid: u64, session: &Session) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("Sid".into(), sid.into());
    shown.insert("Expire".into(), Time { sec: session.expire, nsec: 0 }.utc("%Y-%m-%dT%H:%M:%SZ").into());
    if let Some(Value::Object(info)) = session.who().and_then(|who| serde_json::to_value(who).ok()) {
        shown.extend(info);
    }
    shown
}

fn session_details(engine: &dyn Engine, meta: &Meta, sid: u64) -> Result<Value> {
    let found = sessions(meta)?.into_iter().find(|(known, _)| *known == sid);
    let (_, session) =
        found.with_context(|| format!("there is no session {sid}; `sluice status` lists them"))?;
    let mut shown = describe(sid, &session);
    let reads = [Read::All(List::Sustained(sid)), Read::All(List::LocksOf(sid))];
    let (mut sustained, mut flocks, mut plocks) = (Vec::new(), Vec::new(), Vec::new());
    for found in engine.read(&reads)? {
        let Found::Rows(rows) = found else { continue };
        for row in rows {
            match row {
                Row::Sustained(_, Ino(ino)) => sustained.push(Value::from(ino)),
                Row::Flock(Ino(ino), owner, kind) => {
                    let kind = if kind == FlockKind::Read { "R" } else { "W" };
                    flocks.push(json!({ "Inode": ino, "Owner": owner.owner, "Ltype": kind }));
                }
                Row::Plock(Ino(ino), owner, ranges) => {
                    let records = STANDARD.encode(encode_plocks(&ranges));
                    plocks.push(json!({ "Inode": ino, "Owner": owner.owner, "Records": records }));
                }
                _ => {}
            }
        }
    }
    for (name, list) in [("Sustained", sustained), ("Flocks", flocks), ("Plocks", plocks)] {
        if !list.is_empty() {
            shown.insert(name.into(), list.into());
        }
    }
    Ok(Value::Object(shown))
}

/// What waits to be deleted.
fn more(meta: &Meta) -> Result<[(&'static str, u64); 8]> {
    let never = Interrupt::never();
    let (mut trash, mut pending, mut replaced, mut unused) = ([0; 2], [0; 2], [0; 2], [0; 2]);
    let count = |sum: &mut [u64; 2], size: u64| {
        sum[0] += 1;
        sum[1] += size;
    };
    meta.each_page(Scan::Nodes, &never, |rows| {
        for row in rows {
            if let Row::Node(_, attr) = row
                && attr.parent.is_trash_hour()
            {
                count(&mut trash, attr.space() as u64);
            }
        }
        Ok(())
    })?;
    meta.each_page(Scan::DelFiles, &never, |rows| {
        for row in rows {
            if let Row::DelFile(_, length, _) = row {
                count(&mut pending, align4k(length) as u64);
            }
        }
        Ok(())
    })?;
    meta.each_page(Scan::DelSlices, &never, |rows| {
        for row in rows {
            if let Row::DelSlices(_, _, slices) = row {
                for (_, size) in slices {
                    count(&mut replaced, u64::from(size));
                }
            }
        }
        Ok(())
    })?;
    meta.each_page(Scan::SliceRefs, &never, |rows| {
        for row in rows {
            if let Row::SliceRef(_, size, refs) = row
                && refs <= 0
            {
                count(&mut unused, u64::from(size));
            }
        }
        Ok(())
    })?;
    Ok([
        ("TrashFileCount", trash[0]),
        ("TrashFileSize", trash[1]),
        ("PendingDeletedFileCount", pending[0]),
        ("PendingDeletedFileSize", pending[1]),
        ("TrashSliceCount", replaced[0]),
        ("TrashSliceSize", replaced[1]),
        ("PendingDeletedSliceCount", unused[0]),
        ("PendingDeletedSliceSize", unused[1]),
    ])
}
