//! Waits that end.

use std::time::Duration;

/// No test waits longer for anything; a machine under load is slow, and a hang is for ever.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must come.
pub(crate) async fn within<F: Future>(what: &str, awaited: F) -> F::Output {
    tokio::time::timeout(PATIENCE, awaited).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Waits until a condition holds that must come to hold.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
