//! What a consumer may be told, with its defaults.

use std::time::Duration;

use crate::finding::Check;
use crate::handler::Spec;
use crate::retry::RetryPolicy;

/// What becomes of a message that no handler takes: its type is unknown here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownType {
    /// Given back with a growing delay: in a rolling deploy a newer process knows it.
    #[default]
    GiveBack,
    /// Kept as a dead letter.
    DeadLetter,
    /// Acknowledged and counted: somebody else's message.
    Skip,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub concurrency: usize,
    pub prefetch: usize,
    pub retry: RetryPolicy,
    pub timeout: Option<Duration>,
    pub retention: Duration,
    pub horizon: Option<Duration>,
    pub unknown_type: UnknownType,
    pub suspect_after: u32,
    pub keep_leases: bool,
    pub grace: Duration,
    /// What the doctor finds of these is no error.
    pub allowed: Vec<Check>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 16,
            prefetch: 0,
            retry: RetryPolicy::default(),
            timeout: None,
            retention: Duration::from_hours(30 * 24),
            horizon: None,
            unknown_type: UnknownType::default(),
            suspect_after: 3,
            keep_leases: true,
            grace: Duration::from_secs(25),
            allowed: Vec::new(),
        }
    }
}

impl Options {
    /// The most messages of a source that are here at once, running or waiting.
    pub(crate) fn in_flight(&self) -> usize {
        self.concurrency.saturating_add(self.prefetch)
    }

    /// How long a handler's claims are kept.
    pub(crate) fn retention_of(&self, spec: &Spec) -> Duration {
        spec.retention.unwrap_or(self.retention)
    }
}

/// How much younger than the retention a delivery must be to run: clocks differ, and a delivery may wait.
pub(crate) fn margin(retention: Duration) -> Duration {
    (retention / 10).min(Duration::from_hours(24))
}
