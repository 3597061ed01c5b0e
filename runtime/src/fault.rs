//! Named points along the one order, at which a test may make a process crash.

#![cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, reason = "the test kit is what uses the names")
)]

use std::fmt;
use std::sync::Arc;

/// A point along the one order, in its order. A test hooks it by `Consumer::on_fault_point` (feature `testing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultPoint {
    /// The delivery has arrived.
    Received,
    /// It is decoded and has its key.
    Keyed,
    /// Its claim is in the open transaction.
    Claimed,
    /// Its body has returned; nothing is committed.
    EffectDone,
    /// The commit is about to be sent.
    BeforeCommit,
    /// The commit has succeeded; nothing is acknowledged.
    Committed,
    /// The acknowledgement is about to be sent.
    BeforeAcknowledge,
    /// The acknowledgement was sent.
    Acknowledged,
    /// The body has failed and is rolled back; the failure isn't recorded.
    RolledBack,
    /// The failure is recorded; the message isn't given back.
    FailureRecorded,
    /// The dead letter is committed; the message isn't acknowledged.
    DeadLetterCommitted,
}

impl FaultPoint {
    /// The points that a message passes whose body succeeds.
    pub const SUCCESS: [Self; 8] = [
        Self::Received,
        Self::Keyed,
        Self::Claimed,
        Self::EffectDone,
        Self::BeforeCommit,
        Self::Committed,
        Self::BeforeAcknowledge,
        Self::Acknowledged,
    ];

    /// The further points that a message passes whose body fails.
    pub const FAILURE: [Self; 3] = [Self::RolledBack, Self::FailureRecorded, Self::DeadLetterCommitted];

    /// The point's name, as it is written in a child process's environment.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// The point of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::SUCCESS.into_iter().chain(Self::FAILURE).find(|point| point.name() == name)
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a test does at a point: panic to end the message's task, or end the process.
pub(crate) type Hook = Arc<dyn Fn(FaultPoint) + Send + Sync>;

/// The hook of one consumer, if a test has set one.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "testing")]
    pub(crate) hook: Option<Hook>,
}

impl Faults {
    #[inline]
    #[cfg_attr(not(feature = "testing"), allow(clippy::unused_self, reason = "without tests there is no hook"))]
    pub(crate) fn reach(&self, point: FaultPoint) {
        #[cfg(feature = "testing")]
        if let Some(hook) = &self.hook {
            hook(point);
        }
        #[cfg(not(feature = "testing"))]
        let _ = point;
    }
}
