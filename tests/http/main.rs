//! Webhooks on real sockets, served by axum: the same tests over SQLite and Postgres.

#![cfg(all(feature = "macros", feature = "http", feature = "sqlite", feature = "postgres"))]
#![allow(missing_docs, reason = "handlers of tests")]
#![allow(clippy::duplicate_mod, reason = "the tests in `promise` are compiled for each database's connection type")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "../common/child.rs"]
mod child;
mod client;
mod postgres;
mod server;
mod sqlite;

use std::time::Duration;

/// No test waits longer for anything; a machine under load is slow, and a hang is for ever.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must come.
async fn within<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(PATIENCE, awaited).await.expect("it should have come by now")
}

/// Waits until a condition holds that must come to hold.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    within(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
