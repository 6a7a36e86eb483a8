//! Queries to the engine with a short timeout: `df` must not hang if the engine does.
//!
//! What must stay true: no caller waits longer than its timeout. A result that comes in time was
//! requested after the call began.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use sluice_types::wait;

/// How long a caller waits for the engine.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(300);
/// How long the thread of a query waits for another call.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// One query. One thread at a time runs it, for all callers that wait.
pub(crate) struct TimedQuery<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    requested: Condvar,
    answered: Condvar,
}

struct State<T> {
    /// Whether the thread runs.
    running: bool,
    requested: u64,
    /// Number of the last call that has a result, or failed.
    done: u64,
    /// The newest result, and the last call that it is valid for.
    last: Option<(T, u64)>,
}

impl<T> Default for TimedQuery<T> {
    fn default() -> Self {
        let state = State { running: false, requested: 0, done: 0, last: None };
        let state = Mutex::new(state);
        Self(Arc::new(Shared { state, requested: Condvar::new(), answered: Condvar::new() }))
    }
}

impl<T: Copy + Send + 'static> TimedQuery<T> {
    /// Runs `query` on another thread, unless that thread runs already, and waits at most `timeout`
    /// for a result. `None` if there is none by then, or if `query` returned `None`.
    pub(crate) fn get(&self, timeout: Duration, query: impl Fn() -> Option<T> + Send + 'static) -> Option<T> {
        let until = wait::now() + timeout;
        let mut state = self.0.state.lock();
        state.requested += 1;
        let call = state.requested;
        if state.running {
            self.0.requested.notify_one();
        } else {
            let shared = Arc::clone(&self.0);
            let work = move || shared.serve(query);
            state.running = wait::spawn("sluice-query", work).is_ok();
        }
        while state.running && state.done < call {
            let left = until.saturating_duration_since(wait::now());
            if left.is_zero() {
                break;
            }
            wait::wait_for(&self.0.answered, &mut state, left);
        }
        state.last.filter(|(_, requested)| *requested >= call).map(|(answer, _)| answer)
    }

    /// The newest result, however old.
    pub(crate) fn last(&self) -> Option<T> {
        self.0.state.lock().last.map(|(answer, _)| answer)
    }
}

impl<T> Shared<T> {
    fn serve(&self, query: impl Fn() -> Option<T>) {
        let mut idle_until = wait::now() + IDLE_TIMEOUT;
        let mut state = self.state.lock();
        loop {
            if state.done == state.requested {
                let left = idle_until.saturating_duration_since(wait::now());
                if left.is_zero() {
                    state.running = false;
                    return;
                }
                wait::wait_for_work(&self.requested, &mut state, left);
                continue;
            }
            let call = state.requested;
            drop(state);
            let answer = query();
            idle_until = wait::now() + IDLE_TIMEOUT;
            state = self.state.lock();
            state.done = call;
            if let Some(answer) = answer {
                state.last = Some((answer, call));
            }
            self.answered.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_query_that_hangs_is_given_up_and_its_answer_kept() {
        let query = TimedQuery::<u32>::default();
        let (send, receive) = mpsc::channel();
        let receive = Mutex::new(receive);
        let (begin, begun) = mpsc::channel();
        let run = move || {
            begin.send(()).ok();
            receive.lock().recv().ok()
        };
        assert_eq!(query.get(Duration::from_millis(1), run), None);
        begun.recv().unwrap();
        assert_eq!((query.get(Duration::ZERO, || None), query.last()), (None, None), "one runs for all");
        send.send(1).unwrap();
        send.send(2).unwrap();
        let long = Duration::from_mins(1);
        send.send(3).unwrap();
        let answer = query.get(long, || None).unwrap();
        assert!(answer >= 2, "the first was requested before: {answer}");
        drop(send);
        while query.get(long, || None).is_some() {}
        assert!(query.last().is_some(), "no answer replaces none");
    }
}
