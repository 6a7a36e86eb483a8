//! The JSON API, which `docs/console.md` describes.

use serde::Serialize;
use serde_json::{Value, json};
use sluice_types::{Clock as _, SystemClock};

use crate::{
    clients::Client,
    live::{Activity, Round, SERIES},
    problems::{self, Problem, Severity},
    survey::Survey,
    watch::{Known, Watched},
};

/// Most clients in an answer.
const CLIENTS: usize = 1000;
/// Age from which on what was read is out of date, seconds.
const OLD: i64 = 60;

/// What a path of the API names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Overview,
    Volume(usize),
    /// The points of the graphs after that moment, Unix milliseconds.
    Rates(usize, i64),
}

/// Why a path of the API is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Wrong(&'static str),
}

/// Understands a path below `/api/` and its query.
pub(crate) fn question(path: &str, query: Option<&str>) -> Result<Question, Refused> {
    let path = path.strip_prefix("/api/v1/").ok_or(Refused::Unknown)?;
    let parts: Vec<&str> = path.split('/').collect();
    let id = |text: &str| text.parse::<usize>().map_err(|_| Refused::Unknown);
    match parts.as_slice() {
        ["overview"] => Ok(Question::Overview),
        ["volumes", volume] => Ok(Question::Volume(id(volume)?)),
        ["volumes", volume, "rates"] => Ok(Question::Rates(id(volume)?, since(query)?)),
        _ => Err(Refused::Unknown),
    }
}

fn since(query: Option<&str>) -> Result<i64, Refused> {
    let mut since = 0;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("since", value)) => {
                since = value.parse().map_err(|_| Refused::Wrong("since is a time in Unix milliseconds"))?;
            }
            _ => return Err(Refused::Wrong("the only parameter is since")),
        }
    }
    Ok(since)
}

/// Answers; `None` if there is no such volume.
pub(crate) fn answer(question: Question, volumes: &[impl AsRef<Watched>], version: &str) -> Option<Value> {
    let now = SystemClock.now();
    let volume = |id| volumes.iter().map(AsRef::as_ref).find(|volume| volume.id == id);
    Some(match question {
        Question::Overview => {
            let states: Vec<State> =
                volumes.iter().map(|volume| State::of(volume.as_ref(), now.sec)).collect();
            overview(&states, version, now.sec)
        }
        Question::Volume(id) => State::of(volume(id)?, now.sec).details(),
        Question::Rates(id, since) => json!({
            "now": now.nanos() / 1_000_000,
            "series": SERIES,
            "points": volume(id)?.live.points(since),
        }),
    })
}

/// A volume with what is wrong with it.
struct State<'a> {
    volume: &'a Watched,
    known: Known,
    round: Round,
    problems: Vec<Problem>,
}

impl<'a> State<'a> {
    fn of(volume: &'a Watched, now: i64) -> Self {
        let known = volume.known();
        let (mut problems, mut round) = (Vec::new(), Round::default());
        if let Some(failure) = &known.failure {
            problems.push(Problem::new(
                Severity::Error,
                format!("The volume cannot be read: {}.", failure.text.trim_end_matches('.')),
                "It is retried all the time. Check the database; what is shown here is old.",
            ));
        }
        if let Some(survey) = &known.survey {
            let age = now - survey.at;
            if age > OLD && known.failure.is_none() {
                let text = format!("What is shown is {age} seconds old.");
                problems.push(Problem::new(Severity::Warning, text, "The database answers slowly."));
            }
            round = volume.live.last(&survey.clients.known);
            problems.extend(problems::of(survey, &round, now));
        }
        Self { volume, known, round, problems }
    }

    fn severity(&self) -> Severity {
        self.problems.iter().map(|problem| problem.severity).max().unwrap_or(Severity::Ok)
    }

    /// `starting` before anything is known, else how bad it is.
    fn state(&self) -> Value {
        if self.known.survey.is_none() && self.known.failure.is_none() {
            return json!("starting");
        }
        json!(self.severity())
    }

    fn name(&self) -> &str {
        match &self.known.survey {
            Some(survey) => &survey.settings.name,
            None => &self.volume.url,
        }
    }

    /// The head of all that is said about it.
    fn head(&self) -> Value {
        let survey = self.known.survey.as_deref();
        json!({
            "id": self.volume.id,
            "name": self.name(),
            "url": self.volume.url,
            "state": self.state(),
            "read_at": survey.map(|survey| survey.at),
            "failing_since": self.known.failure.as_ref().map(|failure| failure.since),
            "problems": self.problems,
        })
    }

    fn details(&self) -> Value {
        let mut shown = self.head();
        if let (Value::Object(shown), Some(survey)) = (&mut shown, self.known.survey.as_deref()) {
            let more = json!({
                "settings": survey.settings,
                "space": survey.space,
                "trash": *survey.trash,
                "deletions": *survey.deletions,
                "clients": self.clients(survey),
                "group": *survey.group,
                "quotas": *survey.quotas,
                "directories": *survey.directories,
                "reports": *survey.reports,
                "live": self.round,
            });
            if let Value::Object(more) = more {
                shown.extend(more);
            }
        }
        shown
    }

    fn clients(&self, survey: &Survey) -> Value {
        let clients = &survey.clients;
        let is_stale = |client: &&Client| client.is_stale(survey.clients.at);
        let stale = clients.known.iter().filter(is_stale).count();
        let mut shown: Vec<ShownClient<'_>> = clients
            .known
            .iter()
            .map(|client| ShownClient {
                client,
                name: client.name(),
                stale: client.is_stale(survey.clients.at),
                activity: self.volume.live.activity(client.session),
            })
            .collect();
        shown.sort_by_key(|shown| !shown.stale);
        shown.truncate(CLIENTS);
        json!({ "total": clients.total, "stale": stale, "shown": shown })
    }
}

#[derive(Serialize)]
struct ShownClient<'a> {
    #[serde(flatten)]
    client: &'a Client,
    name: String,
    stale: bool,
    activity: Option<Activity>,
}

fn overview(states: &[State<'_>], version: &str, now: i64) -> Value {
    let severity = states.iter().map(State::severity).max().unwrap_or(Severity::Ok);
    let starting = states.iter().filter(|state| state.state() == "starting").count();
    let volumes: Vec<Value> = states
        .iter()
        .map(|state| {
            let mut head = state.head();
            if let (Value::Object(head), Some(survey)) = (&mut head, state.known.survey.as_deref()) {
                head.insert("space".into(), json!(survey.space));
                head.insert("clients".into(), json!(survey.clients.total));
                head.insert("requests".into(), json!(state.round.rates.requests));
            }
            head
        })
        .collect();
    json!({
        "version": version,
        "now": now,
        "state": if starting == states.len() { json!("starting") } else { json!(severity) },
        "headline": headline(states, starting),
        "volumes": volumes,
    })
}

/// How it is, in a sentence.
fn headline(states: &[State<'_>], starting: usize) -> String {
    if starting == states.len() {
        return "The volumes are being read.".into();
    }
    let count = |severity| {
        states.iter().flat_map(|state| &state.problems).filter(|one| one.severity == severity).count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match (plural(errors, "error"), plural(warnings, "warning")) {
        (None, None) => "All is well.".into(),
        (Some(some), None) | (None, Some(some)) => format!("{some}."),
        (Some(errors), Some(warnings)) => format!("{errors} and {warnings}."),
    }
}

/// So many; `None` for none.
fn plural(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        many => Some(format!("{many} {what}s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood_and_wrong_ones_refused() {
        assert_eq!(question("/api/v1/overview", None), Ok(Question::Overview));
        assert_eq!(question("/api/v1/volumes/2", None), Ok(Question::Volume(2)));
        assert_eq!(question("/api/v1/volumes/2/rates", Some("since=-5")), Ok(Question::Rates(2, -5)));
        for path in [
            "/api",
            "/api/v1/",
            "/api/v1/volumes",
            "/api/v1/volumes/x",
            "/api/v1/volumes/-1",
            "/api/v1/volumes/1/",
            "/api/v1/volumes/1/rates/",
            "/api/v2/overview",
            "/api/v1/volumes/99999999999999999999999",
        ] {
            assert_eq!(question(path, None), Err(Refused::Unknown), "{path}");
        }
        for query in ["since=", "since=x", "since=9223372036854775808", "until=1", "since"] {
            let refused = question("/api/v1/volumes/1/rates", Some(query));
            assert!(matches!(refused, Err(Refused::Wrong(_))), "{query}");
        }
    }
}
