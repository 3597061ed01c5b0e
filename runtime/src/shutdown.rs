//! How a running consumer is asked to end.

use tokio_util::sync::CancellationToken;

/// Asks a consumer to shut down: fetching stops, running bodies finish within the grace period or are rolled back, and
/// what wasn't started is given back.
#[derive(Clone, Debug)]
pub struct Shutdown(pub(crate) CancellationToken);

impl Shutdown {
    /// Begins the shutdown; [`Consumer::run`](crate::Consumer::run) returns when it is complete.
    pub fn begin(&self) {
        self.0.cancel();
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
