//! Sends the metrics of a mount to a Pushgateway and to Graphite, for machines that Prometheus
//! cannot reach.
//!
//! What must stay true: a failure here does not affect the mount, and each step has a deadline.

mod gateway;
mod graphite;
mod labels;

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use anyhow::Result;
use sluice_types::job;
use sluice_vfs::Vfs;

pub(crate) use gateway::Gateway;
pub(crate) use graphite::Graphite;

/// Where the metrics of a mount are sent.
#[derive(Clone)]
pub(crate) struct Pushes {
    pub(crate) gateway: Option<Gateway>,
    pub(crate) graphite: Option<Graphite>,
    /// Time between two times.
    pub(crate) interval: Duration,
}

impl Pushes {
    /// Sends the metrics of `vfs` as long as that lives, on a thread of its own. What goes wrong is
    /// logged, once until it works again.
    pub(crate) fn start(&self, vfs: &Arc<Vfs>) {
        let (this, vfs) = (self.clone(), Arc::downgrade(vfs));
        let push = job("sluice-push", move || this.run(&vfs));
        if let Err(error) = thread::Builder::new().name("sluice-push".into()).spawn(push) {
            tracing::error!(%error, "no thread to push metrics");
        }
    }

    fn run(&self, vfs: &Weak<Vfs>) {
        let mut failing = [false, false];
        loop {
            thread::sleep(self.interval);
            let Some(vfs) = vfs.upgrade() else { return };
            let text = |labels: &[(String, String)]| vfs.prometheus_text(labels);
            if let Some(gateway) = &self.gateway {
                report("the Pushgateway", &mut failing[0], gateway.push(text));
            }
            if let Some(graphite) = &self.graphite {
                report("Graphite", &mut failing[1], graphite.push(text));
            }
        }
    }
}

/// Says when a destination begins to fail, and when it works again.
fn report(what: &str, failing: &mut bool, pushed: Result<()>) {
    match pushed {
        Ok(()) if std::mem::take(failing) => tracing::info!("metrics are sent to {what} again"),
        Err(error) if !std::mem::replace(failing, true) => {
            tracing::warn!("the metrics were not sent to {what}; it is tried again and again: {error:#}");
        }
        Ok(()) | Err(_) => {}
    }
}
