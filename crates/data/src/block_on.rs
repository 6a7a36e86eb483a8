//! Waits for futures of the runtime.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

use sluice_types::wait::{self, Waiter};
use tokio::{runtime::Handle, task::unconstrained};

/// As [`Handle::block_on`]; a task leaves its thread to other tasks meanwhile. Must not be called
/// from the runtime's own threads. It may block a thread of another runtime: a program may drop a
/// file there.
pub(crate) fn block_on<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let caller = wait::current();
    if matches!(caller, Waiter::Thread(_)) && Handle::try_current().is_err() {
        return runtime.block_on(future);
    }
    let waker = caller.into_waker();
    // What another runtime counts for its own task does not count here.
    let mut future = pin!(unconstrained(future));
    loop {
        let polled = {
            let _runtime = runtime.enter();
            future.as_mut().poll(&mut Context::from_waker(&waker))
        };
        match polled {
            Poll::Ready(result) => return result,
            Poll::Pending => wait::park(),
        }
    }
}
