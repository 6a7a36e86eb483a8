//! Why a request failed.

use tonic::Status;

/// Why a request was not answered as expected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server was not reached, or did not answer in time.
    #[error("{0}")]
    Call(#[from] Box<Status>),
    /// The address of a server is wrong, or it was not reached.
    #[error("{0}")]
    Connect(#[from] tonic::transport::Error),
    /// The store is busy, or a region has moved or was split.
    #[error("a store does not serve a region at this moment")]
    Region,
    /// A key is locked, or somebody changed it meanwhile.
    #[error("a key is in use")]
    Key,
    /// A transaction was not committed in one phase. It left locks, which end after some seconds.
    #[error("a store does not commit in one phase")]
    TwoPhases,
    /// There is no timestamp.
    #[error("{0}")]
    Time(String),
    /// No placement driver knows who serves a key.
    #[error("no placement driver knows a region")]
    Unknown,
}
