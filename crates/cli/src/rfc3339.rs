//! Times as people and other programs read them.

use sluice_types::Time;

/// A time as RFC 3339 in UTC.
pub(crate) fn rfc3339(time: Time) -> String {
    let hour = sluice_meta::ops::removal::hour_name(time);
    let (date, hour) = hour.split_at(10);
    let rest = time.sec.rem_euclid(3600);
    format!("{date}T{}:{:02}:{:02}Z", &hour[1..], rest / 60, rest % 60)
}
