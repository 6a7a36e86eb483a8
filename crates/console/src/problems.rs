//! The problems of a volume, as messages for the operator.

use serde::Serialize;

use crate::{live::Round, survey::Survey};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// All is well.
    Ok,
    /// Good to know.
    Note,
    /// Somebody should look at it.
    Warning,
    /// Somebody must act.
    Error,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// What is so.
    pub(crate) text: String,
    /// What to do.
    pub(crate) advice: String,
}

impl Problem {
    pub(crate) fn new(severity: Severity, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity, text: text.into(), advice: advice.into() }
    }
}

/// The part of a limit from which on it is nearly reached.
const NEARLY: f64 = 0.9;
/// Files whose objects wait to be deleted that are many.
const MANY: u64 = 10_000;
/// Age of the newest backup that is old: mounts make one each hour to each day.
const OLD_BACKUP: i64 = 26 * 3600;

/// What is wrong, the worst first; `now` in Unix seconds.
pub(crate) fn of(survey: &Survey, round: &Round, now: i64) -> Vec<Problem> {
    let mut found: Vec<Problem> = survey
        .unread
        .iter()
        .map(|what| {
            let text = format!("A part of the metadata cannot be read: {what}.");
            Problem::new(Severity::Error, text, "Check the database; sluice fsck finds damaged records.")
        })
        .collect();
    space(survey, &mut found);
    sessions(survey, &mut found);
    removal(survey, &mut found);
    activity(round, now, &mut found);
    found.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    found
}

fn space(survey: &Survey, found: &mut Vec<Problem>) {
    let space = &survey.space;
    let limits = [
        ("space", space.used_bytes, space.max_bytes, "--capacity"),
        ("inodes", space.used_inodes, space.max_inodes, "--inodes"),
    ];
    for (what, used, limit, flag) in limits {
        let Some(limit) = limit else { continue };
        let part = used as f64 / limit as f64;
        if part >= NEARLY {
            let severity = if part >= 1.0 { Severity::Error } else { Severity::Warning };
            let advice = format!("Remove files, or raise the limit: sluice config META-URL {flag}.");
            found.push(Problem::new(
                severity,
                format!("{} of the volume's {what} is used.", percent(part)),
                advice,
            ));
        }
    }
    for limit in survey.quotas.shown.iter().filter(|limit| limit.used >= NEARLY).take(5) {
        let severity = if limit.used >= 1.0 { Severity::Warning } else { Severity::Note };
        let text = format!("The quota of {} {} is used to {}.", limit.kind, limit.of, percent(limit.used));
        found.push(Problem::new(severity, text, "Remove files, or raise it: sluice quota set."));
    }
}

fn sessions(survey: &Survey, found: &mut Vec<Problem>) {
    let clients = &survey.clients.known;
    let stale: Vec<_> = clients.iter().filter(|client| client.is_stale(survey.clients.at)).collect();
    if let Some(first) = stale.first() {
        let text = match stale.len() {
            1 => format!("A client has stopped sending heartbeats: {}.", first.name()),
            many => format!("{many} clients have stopped sending heartbeats, among them {}.", first.name()),
        };
        let advice = "Check its machine. Its locks stay until another client cleans the session up.";
        found.push(Problem::new(Severity::Warning, text, advice));
    }
    if stale.len() == clients.len() {
        let text = "No read-write client has the volume mounted.";
        found.push(Problem::new(Severity::Note, text, "The trash is not emptied meanwhile."));
    }
}

fn removal(survey: &Survey, found: &mut Vec<Problem>) {
    let overdue = survey.trash.overdue_hours;
    if overdue > 0 {
        found.push(Problem::new(
            Severity::Warning,
            format!("{} overdue in the trash.", plural(overdue, "hour is", "hours are")),
            "A mount without --no-bgjob empties it; its log says if that fails.",
        ));
    }
    let files = survey.deletions.files;
    if files.count >= MANY {
        let more = if files.more { "More than " } else { "" };
        found.push(Problem::new(
            Severity::Warning,
            format!("{more}{} deleted files still have objects in the object store.", files.count),
            "Deleting may be too slow: raise --max-deletes of the mounts, or run sluice gc --delete.",
        ));
    }
}

fn activity(round: &Round, now: i64, found: &mut Vec<Problem>) {
    let rates = &round.rates;
    for (rate, severity, text, advice) in [
        (
            rates.io_errors,
            Severity::Error,
            "Programs get input/output errors.",
            "Check the database and the object store, and at the log of the mounts.",
        ),
        (
            rates.staging_errors,
            Severity::Error,
            "Blocks cannot be staged or uploaded.",
            "Check the cache disks and the object store.",
        ),
        (
            rates.object_errors,
            Severity::Warning,
            "Requests to the object store fail.",
            "They are tried again. Check the store, and at the way to it.",
        ),
        (
            rates.database_retries,
            Severity::Warning,
            "The database does not always answer.",
            "Requests are tried again. Check the database, and at the way to it.",
        ),
    ] {
        if rate > 0.0 {
            found.push(Problem::new(severity, text, advice));
        }
    }
    if round.damaged_blocks > 0.0 {
        found.push(Problem::new(
            Severity::Warning,
            format!("{} cached blocks were damaged and read again.", round.damaged_blocks),
            "The disk of a cache may fail.",
        ));
    }
    if let Some(age) = round.last_backup.map(|at| now - at).filter(|age| *age > OLD_BACKUP) {
        found.push(Problem::new(
            Severity::Warning,
            format!("The newest backup of the metadata is {} hours old.", age / 3600),
            "The log of the mounts says why; see --backup-meta.",
        ));
    }
    if round.silent > 0 {
        found.push(Problem::new(
            Severity::Note,
            match round.silent {
                1 => "1 client shows no metrics.".to_owned(),
                many => format!("{many} clients show no metrics."),
            },
            "The table of clients says why.",
        ));
    }
    if round.left_out > 0 {
        found.push(Problem::new(
            Severity::Note,
            format!("The rates cover {} clients; {} more are not scraped.", round.clients, round.left_out),
            "For all of them use Prometheus.",
        ));
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        backlog::{Deletions, Tally, Trash},
        clients::{Client, Clients},
        quotas::{Limit, Quotas},
        rates::Rates,
        survey::Space,
    };

    fn well() -> Survey {
        let client = Client { session: 1, host: "a".into(), expires: 2000, ..Client::default() };
        let clients = Arc::new(Clients { known: vec![client], total: 1, at: 1000 });
        Survey { clients, ..Survey::default() }
    }

    #[test]
    fn a_volume_that_is_well_has_no_problem() {
        assert_eq!(of(&well(), &Round::default(), 1000), Vec::new());
    }

    #[test]
    fn each_problem_is_said_in_words() {
        let texts = |survey: &Survey, round: &Round| {
            of(survey, round, 1_000_000).iter().map(|problem| problem.text.clone()).collect::<Vec<_>>()
        };
        let mut survey = well();
        let clients = Clients { at: 1_000_000, ..survey.clients.as_ref().clone() };
        survey.clients = Arc::new(clients);
        survey.space =
            Space { used_bytes: 95, max_bytes: Some(100), used_inodes: 100, max_inodes: Some(100) };
        survey.trash = Arc::new(Trash { overdue_hours: 1, ..Trash::default() });
        survey.unread = vec!["the trash: damaged".into()];
        let files = Tally { count: MANY, more: true, bytes: 1 };
        survey.deletions = Arc::new(Deletions { files, ..Deletions::default() });
        let quota = Limit {
            kind: "user",
            of: "7".into(),
            used_bytes: 9,
            max_bytes: Some(9),
            used_inodes: 0,
            max_inodes: None,
            used: 1.0,
        };
        survey.quotas = Arc::new(Quotas { total: 1, shown: vec![quota] });
        let round = Round {
            silent: 1,
            left_out: 3,
            damaged_blocks: 2.0,
            last_backup: Some(1),
            rates: Rates {
                io_errors: 1.0,
                staging_errors: 1.0,
                object_errors: 1.0,
                database_retries: 1.0,
                ..Rates::default()
            },
            ..Round::default()
        };
        let found = texts(&survey, &round);
        for wanted in [
            "100 % of the volume's inodes is used.",
            "95 % of the volume's space is used.",
            "The quota of user 7 is used to 100 %.",
            "A client has stopped sending heartbeats: a.",
            "A part of the metadata cannot be read: the trash: damaged.",
            "1 hour is overdue in the trash.",
            "More than 10000 deleted files still have objects in the object store.",
            "Programs get input/output errors.",
            "2 cached blocks were damaged and read again.",
            "The newest backup of the metadata is 277 hours old.",
            "1 client shows no metrics.",
        ] {
            assert!(found.iter().any(|text| text == wanted), "{wanted}: {found:?}");
        }
        let worst = of(&survey, &round, 1_000_000)[0].severity;
        assert_eq!(worst, Severity::Error, "the worst comes first");
    }
}
