//! The names of what is counted and measured.
//!
//! | metric | labels | counts |
//! |---|---|---|
//! | `inboxed.handled` | consumer | effects committed |
//! | `inboxed.duplicate` | consumer, cause | acknowledged without running |
//! | `inboxed.retried` | consumer | failures recorded and given back |
//! | `inboxed.rerun` | consumer | runs again at once, where transactions met |
//! | `inboxed.given_back` | consumer | given back uncounted |
//! | `inboxed.dead_lettered` | consumer, reason | dead letters written |
//! | `inboxed.dead_letter_refused` | consumer | dead letters that couldn't be written |
//! | `inboxed.unknown_type` | source | messages that no handler takes |
//! | `inboxed.settlement_lost` | source | answers that came too late for the broker |
//! | `inboxed.in_flight` | source | gauge: deliveries here, waiting or running |
//! | `inboxed.effect_time` | consumer | histogram of seconds in the body |

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::store::Reason;

type Name = Arc<str>;

/// Why a message was a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The broker handed it out again.
    Redelivery,
    /// The producer sent it again.
    ProducerRetry,
    /// The same key, another payload.
    KeyConflict,
}

impl Cause {
    fn label(self) -> &'static str {
        match self {
            Self::Redelivery => "redelivery",
            Self::ProducerRetry => "producer_retry",
            Self::KeyConflict => "key_conflict",
        }
    }
}

pub(crate) fn handled(consumer: &Name) {
    counter!("inboxed.handled", "consumer" => Arc::clone(consumer)).increment(1);
}

pub(crate) fn duplicate(consumer: &Name, cause: Cause) {
    counter!("inboxed.duplicate", "consumer" => Arc::clone(consumer), "cause" => cause.label()).increment(1);
}

pub(crate) fn retried(consumer: &Name) {
    counter!("inboxed.retried", "consumer" => Arc::clone(consumer)).increment(1);
}

pub(crate) fn rerun(consumer: &Name) {
    counter!("inboxed.rerun", "consumer" => Arc::clone(consumer)).increment(1);
}

pub(crate) fn given_back(consumer: &Name) {
    counter!("inboxed.given_back", "consumer" => Arc::clone(consumer)).increment(1);
}

pub(crate) fn dead_lettered(consumer: &Name, reason: Reason) {
    counter!("inboxed.dead_lettered", "consumer" => Arc::clone(consumer), "reason" => reason.as_str()).increment(1);
}

pub(crate) fn dead_letter_refused(consumer: &Name) {
    counter!("inboxed.dead_letter_refused", "consumer" => Arc::clone(consumer)).increment(1);
}

pub(crate) fn unknown_type(source: &Name) {
    counter!("inboxed.unknown_type", "source" => Arc::clone(source)).increment(1);
}

pub(crate) fn settlement_lost(source: &Name, count: usize) {
    counter!("inboxed.settlement_lost", "source" => Arc::clone(source)).increment(count as u64);
}

pub(crate) fn effect_time(consumer: &Name, time: Duration) {
    histogram!("inboxed.effect_time", "consumer" => Arc::clone(consumer)).record(time);
}

/// One delivery in flight, until it is dropped.
pub(crate) struct InFlightGauge(Name);

impl InFlightGauge {
    pub(crate) fn new(source: &Name) -> Self {
        gauge!("inboxed.in_flight", "source" => Arc::clone(source)).increment(1.0);
        Self(Arc::clone(source))
    }
}

impl Drop for InFlightGauge {
    fn drop(&mut self) {
        gauge!("inboxed.in_flight", "source" => Arc::clone(&self.0)).decrement(1.0);
    }
}
