//! Classifies the errors of TiKV and its client for a transaction.
//!
//! What must stay true: only an answer of the server that refuses the transaction counts as a
//! refusal. Any error after which the commit may have happened counts as [`Meaning::Unknown`].

use tikv_client::{Error, ProtoKeyError};

/// What an error means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Another client wrote or locks a key that the transaction writes, or a key that must be new
    /// exists: begin again.
    Conflict,
    /// A lock without a visible transaction: left by a client that died, or the transaction is
    /// still on its way.
    Orphan,
    /// The server will never do it.
    Never,
    /// Anything else: the server was not reached, or could not say.
    Unknown,
}

/// Classifies an error; of several, the first that is not [`Meaning::Unknown`] counts.
pub(crate) fn meaning(error: &Error) -> Meaning {
    match error {
        Error::KeyError(error) => of_key(error),
        Error::ExtractedErrors(errors) | Error::MultipleKeyErrors(errors) => {
            let mut all = errors.iter().map(meaning);
            all.find(|meaning| *meaning != Meaning::Unknown).unwrap_or(Meaning::Unknown)
        }
        Error::PessimisticLockError { inner, .. } => meaning(inner),
        Error::ResolveLockError(_) => Meaning::Conflict,
        Error::TxnNotFound(_) => Meaning::Orphan,
        Error::RegionError(error) if error.raft_entry_too_large.is_some() => Meaning::Never,
        _ => Meaning::Unknown,
    }
}

fn of_key(error: &ProtoKeyError) -> Meaning {
    if error.txn_not_found.is_some() {
        Meaning::Orphan
    } else if error.already_exist.is_some()
        || error.conflict.is_some()
        || error.locked.is_some()
        || error.deadlock.is_some()
        || !error.retryable.is_empty()
    {
        Meaning::Conflict
    } else {
        Meaning::Unknown
    }
}

/// The error in one line, without the bytes of keys and values that the client prints.
pub(crate) fn shown(error: &Error) -> String {
    match error {
        Error::KeyError(error) if error.conflict.is_some() => "write conflict".into(),
        Error::KeyError(error) if error.locked.is_some() => "a key is locked".into(),
        Error::ExtractedErrors(errors) | Error::MultipleKeyErrors(errors) => {
            errors.first().map_or_else(|| "several errors".into(), shown)
        }
        Error::ResolveLockError(_) => "a lock of another client did not go away".into(),
        Error::TxnNotFound(_) => "a lock was left by a client that died".into(),
        Error::UndeterminedError(inner) => shown(inner),
        Error::RegionError(error) => {
            if error.server_is_busy.is_some() {
                "the server is busy".into()
            } else if error.raft_entry_too_large.is_some() {
                "the transaction is too large for one entry of the raft log (raft-entry-max-size)".into()
            } else {
                format!("a region cannot be reached: {}", cut(&error.message))
            }
        }
        Error::LeaderNotFound { .. } => "a region has no leader at this moment".into(),
        other => cut(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}
