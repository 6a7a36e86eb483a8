//! Classifies the errors of etcd.
//!
//! What must stay true: an error is [`EngineError::Unavailable`] or [`EngineError::Refused`] only
//! if the call certainly had no effect.

use std::error::Error;

use sluice_meta::engine::EngineError;
use tonic::{Code, ConnectError, Status};

use crate::kv::Volume;

/// etcd's message for a revision that was compacted.
pub(super) const COMPACTED: &str = "has been compacted";

/// etcd's messages if it has done nothing, and a retry with a new revision or token may succeed.
const LATER: [&str; 4] = [COMPACTED, "too many requests", "invalid auth token", "revision of auth store"];

/// etcd's messages if an administrator must act, and what to do.
const ADVICE: [(&str, &str); 4] = [
    (
        "database space exceeded",
        "the database has reached --quota-backend-bytes: compact it, defragment it (etcdctl defrag) or raise the quota, \
         then etcdctl alarm disarm",
    ),
    ("too many operations", "raise the server's --max-txn-ops, or name a smaller max-txn-ops in the URL"),
    ("request is too large", "raise the server's --max-request-bytes"),
    ("message larger than max", "raise the server's --max-request-bytes"),
];

/// The error for a status of a call. A call that only reads never has an effect.
pub(super) fn error(volume: &Volume, status: &Status, reads: bool) -> EngineError {
    let said = status.message();
    if let Some((_, advice)) = ADVICE.iter().find(|(words, _)| said.contains(words)) {
        return volume.refused(format!("{said}; {advice}"));
    }
    let not_sent = causes(status).any(<dyn Error>::is::<ConnectError>);
    let not_done = not_sent || LATER.iter().any(|words| said.contains(words));
    match status.code() {
        _ if not_done => volume.unavailable(with_causes(status)),
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::Unimplemented => volume.refused(said),
        _ if reads => volume.unavailable(with_causes(status)),
        _ => volume.indeterminate(with_causes(status)),
    }
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

/// An error with its causes, each once.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.chars().take(300).collect()
}
