//! Whether a consumer can work: its store and its sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// A consumer's health: what keeps it from working, if anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Why the store is out of reach. Fetching stands still meanwhile, and no attempt is counted.
    pub store: Option<String>,
    /// Why a source is out of reach, by its name.
    pub sources: BTreeMap<Arc<str>, String>,
}

impl Report {
    /// Whether nothing keeps the consumer from working.
    pub fn is_healthy(&self) -> bool {
        self.store.is_none() && self.sources.is_empty()
    }
}

/// A consumer's health from outside: `consumer.health()`, for a readiness probe.
///
/// ```
/// # async fn probe(health: inboxed_runtime::Health) -> u16 {
/// if health.report().is_healthy() { 200 } else { 503 }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<Report>);

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(Report::default()))
    }
}

impl Health {
    /// How it is now.
    pub fn report(&self) -> Report {
        self.0.borrow().clone()
    }

    /// Waits until the report satisfies a condition.
    pub async fn wait_for(&self, condition: impl FnMut(&Report) -> bool) -> Report {
        match self.0.subscribe().wait_for(condition).await {
            Ok(report) => report.clone(),
            // The sender lives as long as `self`, so this isn't reached.
            Err(_) => self.report(),
        }
    }

    /// Notes that the store is out of reach; `false` if that was known.
    pub(crate) fn store_down(&self, reason: String) -> bool {
        self.0.send_if_modified(|report| report.store.replace(reason).is_none())
    }

    /// Notes that the store answers; `false` if that was known.
    pub(crate) fn store_up(&self) -> bool {
        self.0.send_if_modified(|report| report.store.take().is_some())
    }

    pub(crate) fn source_down(&self, source: &Arc<str>, reason: String) {
        self.0.send_if_modified(|report| report.sources.insert(Arc::clone(source), reason).is_none());
    }

    pub(crate) fn source_up(&self, source: &Arc<str>) {
        self.0.send_if_modified(|report| report.sources.remove(source).is_some());
    }
}

/// One source's part of a consumer's health, for its adapter: a broker that hands out nothing may be at fault without any
/// error. Whenever a source is opened, it counts as healthy again.
#[derive(Clone, Debug, Default)]
pub struct SourceHealth {
    health: Health,
    source: Arc<str>,
}

impl SourceHealth {
    pub(crate) fn new(health: Health, source: Arc<str>) -> Self {
        Self { health, source }
    }

    /// Notes why nothing comes.
    pub fn down(&self, reason: impl Into<String>) {
        self.health.source_down(&self.source, reason.into());
    }

    /// Notes that messages can come.
    pub fn up(&self) {
        self.health.source_up(&self.source);
    }
}
