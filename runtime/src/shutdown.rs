//! How a running consumer is asked to end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long what was rolled back at the end of the grace period may take to be given back.
pub(crate) const GIVE_BACK: Duration = Duration::from_millis(900);

/// Asks a consumer to shut down: fetching stops, running bodies finish within the grace period or are rolled back, and
/// what wasn't started is given back.
#[derive(Clone, Debug)]
pub struct Shutdown(pub(crate) CancellationToken);

impl Shutdown {
    /// Begins the shutdown; [`Consumer::run`](crate::Consumer::run) returns when it is complete.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// Waits until a shutdown has begun: by [`begin`](Self::begin), or by the signal that ends
    /// [`Consumer::run`](crate::Consumer::run). For what else ends with the consumer, such as a server of HTTP.
    pub async fn begun(&self) {
        self.0.cancelled().await;
    }

    /// Whether a shutdown has begun.
    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Lets running bodies finish; after the grace period they are rolled back and given back.
pub(crate) async fn drain(tasks: &TaskTracker, end: &CancellationToken, grace: Duration) {
    tasks.close();
    if tokio::time::timeout(grace, tasks.wait()).await.is_err() {
        tracing::warn!(running = tasks.len(), "the grace period is over; what still runs is rolled back");
        end.cancel();
        if tokio::time::timeout(GIVE_BACK, tasks.wait()).await.is_err() {
            tracing::error!(running = tasks.len(), "left behind; their leases bring them back");
        }
    }
}

/// Completes at the first SIGTERM or SIGINT.
#[cfg(unix)]
pub(crate) async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        tracing::warn!("signals can't be received here; end the consumer by its shutdown handle");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
    }
}

/// Completes at Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
