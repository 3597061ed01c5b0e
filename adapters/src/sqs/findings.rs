//! What is amiss with a queue, beside what its capabilities tell.

use std::time::Duration;

use inboxed_runtime::{Check, Finding};

use super::polls::MOST;
use super::queue::{Queue, Target};

/// A visibility timeout below this can't be kept up when an answer of the service is late.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// A message must outlive a night without consumers.
const SHORT_RETENTION: Duration = Duration::from_hours(12);

impl Queue {
    /// What is found for handlers of so many attempts.
    pub(super) fn findings(&self, attempts: u32) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (error, warning) = (
            |check, found: String, cure: &str| Finding::error(check, &self.name, found, cure),
            |check, found: String, cure: &str| Finding::warning(check, &self.name, found, cure),
        );
        if self.lease.is_zero() {
            let found =
                "the queue's VisibilityTimeout is 0: each message is handed out again at once, to every consumer";
            findings.push(error(Check::Lease, found.to_owned(), "set VisibilityTimeout to 30 or more"));
        } else if self.lease < SHORT_LEASE {
            let found = format!(
                "the queue takes a message back after {:?} (VisibilityTimeout), and an extension that is late by a moment \
                 repeats it",
                self.lease
            );
            findings.push(warning(Check::Lease, found, "set VisibilityTimeout to 30 or more"));
        }
        if self.retention < SHORT_RETENTION {
            let found = format!(
                "the queue keeps a message for {:?} (MessageRetentionPeriod), and loses it when consumers stand still for longer",
                self.retention
            );
            findings.push(warning(
                Check::Durability,
                found,
                "set MessageRetentionPeriod to 345600, four days, or more",
            ));
        }
        match self.redrive.as_ref().map(|redrive| (redrive, &redrive.target)) {
            None => findings.push(warning(
                Check::DeadLetterQueue,
                format!(
                    "the queue has no redrive policy: a message that no consumer settles goes round until it is lost, after {:?}",
                    self.retention
                ),
                "give it a RedrivePolicy with a dead-letter queue, and a maxReceiveCount far above the attempts of a handler",
            )),
            Some((redrive, Target::Hidden(why))) => findings.push(warning(
                Check::DeadLetterQueue,
                format!(
                    "the dead-letter queue {} isn't there, or may not be looked at ({why}): it is taken to keep a message for 14 \
                     days",
                    redrive.arn
                ),
                "see that it is there, and allow sqs:GetQueueUrl and sqs:GetQueueAttributes on it",
            )),
            Some((redrive, Target::Keeps(kept))) if *kept < self.retention && !self.is_fifo() => {
                findings.push(warning(
                    Check::DeadLetterQueue,
                    format!(
                        "the dead-letter queue {} keeps a message for {kept:?} from when it was first sent, and the queue itself \
                         for {:?}: what is moved late is lost at once",
                        redrive.arn, self.retention
                    ),
                    "set the dead-letter queue's MessageRetentionPeriod to 1209600, fourteen days",
                ));
            }
            Some((_, Target::Keeps(_))) => {}
        }
        // As many may wait behind one that fails.
        let behind = attempts.saturating_mul(u32::try_from(MOST).unwrap_or(u32::MAX));
        if let Some(redrive) = self.redrive.as_ref().filter(|redrive| self.is_fifo() && redrive.limit < behind) {
            findings.push(warning(
                Check::DeliveryLimit,
                format!(
                    "the queue gives a message up after {} deliveries (maxReceiveCount), and each failure of one before it in its \
                     group counts for it too: {attempts} attempts of a few such messages bury healthy ones",
                    redrive.limit
                ),
                "raise maxReceiveCount to ten times the attempts or more; 1,000 is the most",
            ));
        }
        findings
    }
}
