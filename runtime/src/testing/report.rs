//! What an exploration found.

use std::fmt;

/// One scenario whose outcome wasn't one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The effect was applied more than once: something is written outside of the transaction, or the key differs
    /// between deliveries of one message.
    Doubled {
        /// What was done to the message.
        scenario: String,
        /// The effects that the query counted.
        effects: u64,
    },
    /// The message counts as handled, and its effect isn't there.
    Lost {
        /// What was done to the message.
        scenario: String,
    },
    /// The message was never handled, however often it was delivered.
    NeverDone {
        /// What was done to the message.
        scenario: String,
        /// The last outcome, or why there was none.
        last: String,
    },
    /// Two different messages count as one: the key ignores what tells them apart.
    Merged {
        /// What was done to the messages.
        scenario: String,
    },
    /// A message without a field of its key was handled instead of dead-lettered.
    FieldNotNeeded {
        /// The field.
        field: String,
    },
    /// The process was to crash at a point that it never reached.
    PointNotReached {
        /// The point.
        point: String,
        /// What happened instead.
        why: String,
    },
    /// The messages haven't got a field that the key is said to be made of, so it couldn't be left out.
    NoSuchField {
        /// The field.
        field: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doubled { scenario, effects } => write!(
                f,
                "doubled: {scenario}: {effects} effects; is something written through a pool instead of the transaction, \
                 or is a part of the key another one at each delivery?"
            ),
            Self::Lost { scenario } => write!(f, "lost: {scenario}: counts as handled, and the effect isn't there"),
            Self::NeverDone { scenario, last } => write!(f, "never done: {scenario}: at last {last}"),
            Self::Merged { scenario } => {
                write!(f, "merged: {scenario}: the key ignores what tells these two messages apart")
            }
            Self::FieldNotNeeded { field } => write!(
                f,
                "a message without `{field}` was handled: all messages that lack it may count as one; is it an `Option` \
                 or `#[serde(default)]`?"
            ),
            Self::PointNotReached { point, why } => write!(f, "the fault point {point} was never reached: {why}"),
            Self::NoSuchField { field } => {
                write!(f, "the messages haven't got the key's field `{field}`; name it as it stands in the JSON")
            }
        }
    }
}

/// An exploration in which every message had exactly one effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The scenarios that were run.
    pub scenarios: u32,
    /// The crashes by which a task or a process ended.
    pub crashes: u32,
}

/// An exploration that found a message with more or less than one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotExact {
    /// Each scenario that went wrong.
    pub findings: Vec<Finding>,
}

impl fmt::Display for NotExact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler's effects aren't exactly once:")?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}

impl std::error::Error for NotExact {}
