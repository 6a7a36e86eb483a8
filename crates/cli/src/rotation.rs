//! Which backups of the metadata are kept, and which are deleted.
//!
//! What must stay true: the rules are those of `JuiceFS`, because each program deletes the backups
//! of the other. It keeps all of the last two days, one a day for two weeks, one a week for two
//! months, and one a month for two years.

use sluice_types::Time;

/// The time in the name of a backup. These texts sort by time.
pub(crate) const STAMP: &str = "%Y-%m-%d-%H%M%S";
const PREFIX: &str = "dump-";
const DAY: i64 = 86_400;

/// The name of a backup that began at `now`; `suffix` says what it contains.
pub(crate) fn name(now: Time, suffix: &str) -> String {
    format!("{PREFIX}{}{suffix}", now.utc(STAMP))
}

/// The backups in `names` with this `suffix` that are to be deleted. Other names are ignored.
pub(crate) fn outdated(names: &[String], suffix: &str, now: Time) -> Vec<String> {
    let mut backups: Vec<(Time, &String)> =
        names.iter().filter_map(|name| Some((time(name, suffix)?, name))).collect();
    backups.sort_unstable_by(|a, b| b.cmp(a));
    let cutoff = two_years_before(now);
    let (mut outdated, mut period) = (Vec::new(), Vec::new());
    let mut days = 2;
    let mut edge = now.sec - days * DAY;
    for (time, name) in backups {
        if cutoff.is_some_and(|cutoff| time < cutoff) {
            outdated.push(name.clone());
            continue;
        }
        if time.sec < edge {
            keep_earliest(&mut period, &mut outdated);
            while time.sec < edge {
                let length = if days < 14 {
                    1
                } else if days < 60 {
                    7
                } else {
                    30
                };
                days += length;
                edge -= length * DAY;
            }
        }
        // All of the first days stay.
        if days > 2 {
            period.push(name.clone());
        }
    }
    keep_earliest(&mut period, &mut outdated);
    outdated
}

/// Keeps the earliest backup of a period, which is sorted with the latest first.
fn keep_earliest(period: &mut Vec<String>, outdated: &mut Vec<String>) {
    period.pop();
    outdated.append(period);
}

fn time(name: &str, suffix: &str) -> Option<Time> {
    let text = name.strip_prefix(PREFIX)?.strip_suffix(suffix)?;
    // strptime is lenient about digits.
    (text.len() == "2006-01-02-150405".len()).then(|| Time::from_utc(STAMP, text))?
}

/// The same date two years ago; the day after the 28th of February where there is no 29th.
fn two_years_before(now: Time) -> Option<Time> {
    let year: i64 = now.utc("%Y").parse().ok()?;
    let rest = now.utc("-%m-%d-%H%M%S").replace("-02-29-", "-03-01-");
    Time::from_utc(STAMP, &format!("{}{rest}", year - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = ".json.gz";

    fn at(text: &str) -> Time {
        Time::from_utc(STAMP, text).expect("a time")
    }

    fn ago(now: Time, hours: i64) -> String {
        name(Time { sec: now.sec - hours * 3600, ..now }, JSON)
    }

    #[test]
    fn names_are_those_of_juicefs() {
        let name = name(at("2026-03-01-040506"), JSON);
        assert_eq!(name, "dump-2026-03-01-040506.json.gz");
        assert_eq!(name.len(), 30);
    }

    #[test]
    fn old_backups_thin_out() {
        let now = at("2026-03-01-120000");
        // One an hour for 800 days.
        let names: Vec<String> = (0..800 * 24).map(|hours| ago(now, hours)).collect();
        let gone = outdated(&names, JSON, now);
        let mut kept: Vec<i64> = (0..800 * 24).filter(|hours| !gone.contains(&ago(now, *hours))).collect();
        // All of two days, and the instant on the edge.
        let rest = kept.split_off(49);
        assert_eq!(kept, (0..49).collect::<Vec<_>>());
        // The earliest of each of 12 days, 7 weeks and the months of two years, the last cut short.
        let days = (3..=14).map(|day| day * 24);
        let weeks = (1..=7).map(|week| (14 + week * 7) * 24);
        let months = (1..=22).map(|month| (63 + month * 30) * 24);
        let last = (at("2026-03-01-120000").sec - at("2024-03-01-120000").sec) / 3600;
        assert_eq!(rest, days.chain(weeks).chain(months).chain([last]).collect::<Vec<_>>());
        // Once more, nothing goes.
        let names: Vec<String> = names.into_iter().filter(|name| !gone.contains(name)).collect();
        assert_eq!(outdated(&names, JSON, now), Vec::<String>::new());
    }

    #[test]
    fn other_names_stay() {
        let now = at("2026-03-01-120000");
        let names =
            ["dump-2001-01-01-000000.bin.gz", "dump-2001.json.gz", "notes", "dump-2001-01-01-00000x.json.gz"];
        let names = names.map(str::to_owned);
        assert_eq!(outdated(&names, JSON, now), Vec::<String>::new());
        assert_eq!(outdated(&names, ".bin.gz", now), [names[0].clone()]);
    }

    #[test]
    fn two_years_before_a_leap_day_is_the_first_of_march() {
        assert_eq!(two_years_before(at("2028-02-29-120000")), Some(at("2026-03-01-120000")));
    }
}
