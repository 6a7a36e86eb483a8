//! Queries to the engine with a short timeout: `df` must not hang if the engine does.
//!
//! What must stay true: no caller waits longer than its timeout. A result that comes in time was
//! requested after the call began.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use sluice_types::wait;

/// How long a caller waits for the engine.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// How long the thread of a query waits for another call.
const IDLE: Duration = Duration::from_secs(1);

/// One query. One thread at a time runs it, for all callers that wait.
pub(crate) struct TimedQuery<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    asked: Condvar,
    answered: Condvar,
}

struct State<T> {
    /// Whether the thread runs.
    running: bool,
    asked: u64,
    /// Number of the last call that has a result, or failed.
    done: u64,
    /// The newest result, and the last call that it is valid for.
    last: Option<(T, u64)>,
}

impl<T> Default for TimedQuery<T> {
    fn default() -> Self {
        let state = State { running: false, asked: 0, done: 0, last: None };
        let state = Mutex::new(state);
        Self(Arc::new(Shared { state, asked: Condvar::new(), answered: Condvar::new() }))
    }
}

impl<T: Copy + Send + 'static> TimedQuery<T> {
    /// Runs `query` on another thread, unless that thread runs already, and waits at most `timeout`
    /// for a result. `None` if there is none by then, or if `query` returned `None`.
    pub(crate) fn ask(&self, patience: Duration, ask: impl Fn() -> Option<T> + Send + 'static) -> Option<T> {
        let until = wait::now() + patience;
        let mut state = self.0.state.lock();
        state.asked += 1;
        let question = state.asked;
        if state.running {
            self.0.asked.notify_one();
        } else {
            let shared = Arc::clone(&self.0);
            let work = move || shared.serve(ask);
            state.running = wait::spawn("sluice-query", work).is_ok();
        }
        while state.running && state.done < question {
            let left = until.saturating_duration_since(wait::now());
            if left.is_zero() {
                break;
            }
            wait::wait_for(&self.0.answered, &mut state, left);
        }
        state.last.filter(|(_, asked)| *asked >= question).map(|(answer, _)| answer)
    }

    /// The newest result, however old.
    pub(crate) fn last(&self) -> Option<T> {
        self.0.state.lock().last.map(|(answer, _)| answer)
    }
}

impl<T> Shared<T> {
    fn serve(&self, ask: impl Fn() -> Option<T>) {
        let mut idle_until = wait::now() + IDLE;
        let mut state = self.state.lock();
        loop {
            if state.done == state.asked {
                let left = idle_until.saturating_duration_since(wait::now());
                if left.is_zero() {
                    state.running = false;
                    return;
                }
                wait::wait_for_work(&self.asked, &mut state, left);
                continue;
            }
            let question = state.asked;
            drop(state);
            let answer = ask();
            idle_until = wait::now() + IDLE;
            state = self.state.lock();
            state.done = question;
            if let Some(answer) = answer {
                state.last = Some((answer, question));
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
    fn a_question_that_hangs_is_given_up_and_its_answer_kept() {
        let query = TimedQuery::<u32>::default();
        let (send, receive) = mpsc::channel();
        let receive = Mutex::new(receive);
        let (begin, begun) = mpsc::channel();
        let ask = move || {
            begin.send(()).ok();
            receive.lock().recv().ok()
        };
        assert_eq!(query.ask(Duration::from_millis(1), ask), None);
        begun.recv().unwrap();
        assert_eq!((query.ask(Duration::ZERO, || None), query.last()), (None, None), "one asks for all");
        send.send(1).unwrap();
        send.send(2).unwrap();
        let long = Duration::from_mins(1);
        send.send(3).unwrap();
        let answer = query.ask(long, || None).unwrap();
        assert!(answer >= 2, "the first was asked for before: {answer}");
        drop(send);
        while query.ask(long, || None).is_some() {}
        assert!(query.last().is_some(), "no answer replaces none");
    }
}
