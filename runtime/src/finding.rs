//! What the doctor finds: a setting of the broker, the inbox or the consumer that would lose, repeat or bury messages.

use std::fmt;

/// What was held against what. An error of it refuses the start, unless [`Consumer::allow`](crate::Consumer::allow) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Check {
    /// The handlers against each other, and against what the inbox knows of them. Can't be allowed.
    Handlers,
    /// The inbox's tables and its server. Can't be allowed here; [`InboxOptions::allow`](crate::InboxOptions::allow) names the
    /// risks of a server.
    Inbox,
    /// Whether the source can be opened. Can't be allowed.
    Source,
    /// The lease of a delivery: against the handler's timeout, where it isn't extended, or too short to be extended in time.
    Lease,
    /// How long the broker keeps a message, dead letters of its own included, against how long claims are kept.
    Retention,
    /// After how many deliveries the broker gives a message up, against the consumer's own limit of attempts.
    DeliveryLimit,
    /// What becomes of a message that the broker gives up: one without a place for it is gone.
    DeadLetterQueue,
    /// How many messages may be out at once, against what the consumer takes.
    InFlight,
    /// Whether the broker keeps messages over a restart of its own.
    Durability,
    /// Anything else of the source's settings.
    Settings,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It costs time or repeats work.
    Warning,
    /// Messages would be lost, buried while healthy, or stand still: the start is refused.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One finding: what was found, what was wanted, and the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was held against what.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: a source's name, a consumer's, or `inbox`.
    pub subject: String,
    /// The two figures that disagree, as a sentence: `the queue gives a message up after 3 deliveries, and a handler has 5 attempts`.
    pub found: String,
    /// What to do, as a sentence: `raise maxReceiveCount to 10 or more`.
    pub cure: String,
}

impl Finding {
    /// Something that refuses the start.
    pub fn error(check: Check, subject: impl Into<String>, found: impl Into<String>, cure: impl Into<String>) -> Self {
        let (subject, found, cure) = (subject.into(), found.into(), cure.into());
        Self { check, severity: Severity::Error, subject, found, cure }
    }

    /// Something that is worth a line in the log.
    pub fn warning(
        check: Check,
        subject: impl Into<String>,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(check, subject, found, cure) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.subject, self.found, self.cure)
    }
}

/// One line for all errors, each with the name that allows it.
pub(crate) fn list(errors: &[Finding]) -> String {
    let line = |error: &Finding| format!("{error}, or accept it by `.allow(Check::{})`", error.check);
    errors.iter().map(line).collect::<Vec<_>>().join("; ")
}
