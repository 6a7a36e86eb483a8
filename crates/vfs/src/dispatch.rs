//! Runs the requests that programs write to `.control`.

use std::{sync::Arc, thread};

use sluice_types::{Caller, FsError, job};

use crate::control::{Progress, Running, requests::Request};
use crate::{internal::InternalHandle, vfs::Vfs};

impl Vfs {
    /// Takes bytes that a program wrote to `.control`.
    pub(crate) fn control(
        self: &Arc<Self>,
        caller: &Caller,
        handle: &Arc<InternalHandle>,
        offset: u64,
        data: &[u8],
    ) {
        let InternalHandle::Control(control) = &**handle else { return };
        let request = match control.take(offset, data) {
            None => return,
            Some(Err(error)) => return control.finish(Err(error)),
            Some(Ok(request)) => request,
        };
        let Some(running) = Running::begin(&control.all) else { return control.finish(Err(FsError::Again)) };
        // The kernel has checked no permissions for these requests.
        let caller = Caller { admitted: false, ..caller.clone() };
        let (vfs, kept) = (Arc::clone(self), Arc::clone(handle));
        let work = move || {
            let _running = running;
            let InternalHandle::Control(control) = &*kept else { return };
            if let Request::FillCache { background: true, .. } = request {
                // Until it has its place the program waits: who sends many of them takes no place
                // among the requests of others.
                let walks = &control.all.walks;
                let walking = match walks.begin(&caller, &control.interrupt) {
                    Ok(walking) => walking,
                    Err(error) => return control.finish(Err(error)),
                };
                // The program goes away, and the log says what came of it.
                control.finish(Ok(Vfs::begun()));
                let _walking = walking;
                if let Err(error) = vfs.serve(&caller, &control.all.ended, request, &Progress::new(None)) {
                    tracing::warn!(%error, "work in the background ended early");
                }
                return;
            }
            let progress = Progress::new(Some(control));
            let answer = vfs.serve(&caller, &control.interrupt, request, &progress);
            progress.end();
            control.finish(answer);
        };
        if let Err(error) =
            thread::Builder::new().name("sluice-control".into()).spawn(job("sluice-control", work))
        {
            control.finish(Err(FsError::io(format_args!(
                "a thread for .control could not be started: {error}"
            ))));
        }
    }
}
