//! The connections that are open.
//!
//! What must stay true: the number of connections is limited, and strangers cannot block other
//! clients. If there are too many, the oldest connection without a valid token is closed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Whether somebody has shown a token on a connection.
pub(crate) type Trusted = Arc<AtomicBool>;

struct Open {
    number: u64,
    trusted: Trusted,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The oldest first.
    open: VecDeque<Open>,
}

/// The connections.
pub(crate) struct Connections {
    most: usize,
    state: Mutex<State>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Makes room for one more, and gives it a number.
    pub(crate) fn admit(&self, trusted: Trusted) -> u64 {
        let mut state = self.state.lock();
        if state.open.len() >= self.most {
            let stranger = state.open.iter().position(|open| !open.trusted.load(Ordering::Relaxed));
            let oldest = state.open.remove(stranger.unwrap_or(0));
            if let Some(task) = oldest.and_then(|open| open.task) {
                task.abort();
            }
        }
        state.next += 1;
        let number = state.next;
        state.open.push_back(Open { number, trusted, task: None });
        number
    }

    /// Notes the task that serves it, unless it is over already.
    pub(crate) fn serve(&self, number: u64, task: AbortHandle) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.iter_mut().find(|open| open.number == number) {
            open.task = Some(task);
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        self.state.lock().open.retain(|open| open.number != number);
    }
}
