//! What is done to the system, and in which order.

use std::fmt;

use inboxed::testing::FaultPoint;

use crate::arguments::Plan;

/// A part of the one order in which a process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    BeforeClaim,
    Claimed,
    EffectDone,
    /// Committed, but not acknowledged.
    Committed,
}

impl Window {
    pub(crate) const ALL: [Self; 4] = [Self::BeforeClaim, Self::Claimed, Self::EffectDone, Self::Committed];

    /// Its points.
    pub(crate) fn points(self) -> &'static [FaultPoint] {
        match self {
            Self::BeforeClaim => &[FaultPoint::Received, FaultPoint::Keyed],
            Self::Claimed => &[FaultPoint::Claimed],
            Self::EffectDone => &[FaultPoint::EffectDone, FaultPoint::BeforeCommit],
            Self::Committed => &[FaultPoint::Committed, FaultPoint::BeforeAcknowledge],
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeClaim => "before claim",
            Self::Claimed => "claimed",
            Self::EffectDone => "effect done",
            Self::Committed => "committed, not acknowledged",
        })
    }
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A consumer is killed in this window, or at any moment.
    Kill(Option<Window>),
    /// The database is killed, and started again.
    KillDatabase,
    /// All connections to one server are cut.
    Cut,
    /// The broker is stopped and started again.
    RestartBroker,
}

/// All of a plan's events, in an order by chance. Three kills of four are in a window.
pub(crate) fn schedule(plan: &Plan, rng: &mut fastrand::Rng) -> Vec<Event> {
    let anywhere = (plan.kills - crate::arguments::FEWEST_KILLS) / 4;
    let windows = Window::ALL.iter().cycle().take(plan.kills - anywhere).map(|window| Event::Kill(Some(*window)));
    let mut events = windows.collect::<Vec<_>>();
    for (event, times) in [
        (Event::Kill(None), anywhere),
        (Event::KillDatabase, plan.database_kills),
        (Event::Cut, plan.cuts),
        (Event::RestartBroker, plan.restarts),
    ] {
        events.extend(std::iter::repeat_n(event, times));
    }
    rng.shuffle(&mut events);
    events
}
