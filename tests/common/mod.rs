//! What tests over a real inbox share: a database of their own, handlers whose effect can be counted, bounded waits.
//!
//! Handlers take the connection of one database, so what has to do with one is compiled for each: `shop` as a part of
//! `sqlite`, and of `postgres` and `mariadb` in the test binaries that name them.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub(crate) mod child;
pub(crate) mod counters;
pub(crate) mod services;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use inboxed::RetryPolicy;
use serde::Deserialize;

#[cfg(feature = "sqlite")]
pub(crate) use self::sqlite::*;

/// No test waits longer for anything; a machine under load is slow, and a hang is for ever.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// So many attempts, with no time to speak of between them.
pub(crate) fn at_once(attempts: u32) -> RetryPolicy {
    RetryPolicy::default().attempts(attempts).backoff(Duration::from_millis(1), Duration::from_millis(4))
}

/// Waits for something that must come.
#[track_caller]
pub(crate) fn within<F: Future>(awaited: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        let came = tokio::time::timeout(PATIENCE, awaited).await;
        came.unwrap_or_else(|_| panic!("waited in vain at {caller}"))
    }
}

/// Waits until a condition holds that must come to hold.
#[track_caller]
pub(crate) fn until(mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    within(async move {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// A message that is its identity.
#[derive(Deserialize)]
pub(crate) struct Event {
    pub(crate) id: String,
}

/// An event's bytes.
pub(crate) fn event(id: &str) -> String {
    serde_json::json!({ "id": id }).to_string()
}

type Ending = dyn Fn(&str, u32) -> inboxed::Result<()> + Send + Sync;

/// What a test lets happen in a body after its effect, by the event's id and the number of the attempt.
#[derive(Clone)]
pub(crate) struct Script(Arc<Ending>);

impl Script {
    pub(crate) fn new(script: impl Fn(&str, u32) -> inboxed::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }

    pub(crate) fn end(&self, id: &str, attempt: u32) -> inboxed::Result<()> {
        (self.0)(id, attempt)
    }
}
