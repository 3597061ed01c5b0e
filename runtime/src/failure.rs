//! A message whose transaction didn't commit: run again, counted, given back, or at last dead-lettered.

use std::sync::Arc;
use std::time::Duration;

use crate::arrival::{Arrival, Duplicate, Member};
use crate::broker::Settlement;
use crate::error::{Class, Error};
use crate::fault::FaultPoint;
use crate::pipeline::{Answer, Pipeline, Undone, Why};
use crate::proof::{Committed, How, bury};
use crate::store::{Claim, ConsumerId, LetterIdentity, Limits, NewLetter, Reason, Store};
use crate::telemetry;

/// How often a message is run again at once when transactions meet.
const RERUNS: u32 = 5;

/// What the runtime itself says of a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body ran for longer than {0:?} and was rolled back; give it a longer `timeout`, or less to do")]
    Deadline(Duration),
    #[error("the body panicked: {0}")]
    Panicked(String),
}

impl<Db: Store> Pipeline<Db> {
    /// One member in a transaction of its own: the only runs whose failures are counted.
    pub(crate) async fn run_alone(&self, mut member: Member<Db>) -> Vec<Answer> {
        let mut reruns = 0;
        loop {
            let mut proofs = Vec::with_capacity(1);
            let Err(Undone { mut members, why }) = self.transaction(vec![member], &mut proofs).await else {
                return self.conclude(proofs).await;
            };
            let Some(undone) = members.pop() else { return Vec::new() };
            member = undone;
            match why {
                Why::Failed(error) if error.class() == Class::Contention && reruns < RERUNS => {
                    reruns += 1;
                    telemetry::rerun(&member.route.name);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=10 * u64::from(reruns)))).await;
                }
                why => return Box::pin(self.fail(member, why)).await,
            }
        }
    }

    /// The answer to a member that didn't commit, and to the copies that waited for it.
    pub(crate) async fn fail(&self, mut member: Member<Db>, why: Why) -> Vec<Answer> {
        let copies = member.take_copies();
        let answer = match why {
            Why::Ended => Settlement::Release(member.arrival.settling),
            Why::Unknown(error) => self.give_back(member, &error),
            Why::Failed(error) => match error.class() {
                Class::Contention | Class::Unavailable => self.give_back(member, &error),
                Class::Failure | Class::Permanent => self.count_failure(member, &error).await,
            },
        };
        self.with_copies(answer, copies)
    }

    /// An answer that is no proof for the copies that waited for it: they come again.
    pub(crate) fn with_copies(&self, answer: Answer, copies: Vec<Duplicate>) -> Vec<Answer> {
        let delay = self.options.retry.delay(1);
        let copies = copies.into_iter().map(|copy| Settlement::Retry(copy.arrival.settling, delay));
        std::iter::once(answer).chain(copies).collect()
    }

    /// Not the message's fault: it comes again later, and nothing is counted.
    fn give_back(&self, member: Member<Db>, error: &Error) -> Answer {
        tracing::warn!(consumer = %member.route.name, key = %member.claim.identity.name(), error = %error.chain(), "given back uncounted");
        telemetry::given_back(&member.route.name);
        if error.class() == Class::Unavailable {
            self.outage.look(error);
        }
        Settlement::Retry(member.arrival.settling, self.options.retry.delay(1))
    }

    /// The body failed and is rolled back: the failure is recorded, then the message comes again, or at the limit and if
    /// no retry can help is dead-lettered.
    async fn count_failure(&self, member: Member<Db>, error: &Error) -> Answer {
        let text = error.chain();
        let failures = match self.inbox.record_failure(&member.claim, &text).await {
            Ok(failures) => failures,
            Err(error) => return self.give_back(member, &error),
        };
        self.faults.reach(FaultPoint::FailureRecorded);
        let key = member.claim.identity.name();
        if error.class() == Class::Permanent {
            return self.dead_letter(member, Reason::Permanent, &text, failures).await;
        }
        if self.options.retry.exhausted(failures) {
            tracing::error!(consumer = %member.route.name, %key, failures, error = %text, "attempts exhausted");
            return self.dead_letter(member, Reason::AttemptsExhausted, &text, failures).await;
        }
        let delay = self.options.retry.delay(failures);
        tracing::warn!(consumer = %member.route.name, %key, failures, ?delay, error = %text, "the body failed");
        telemetry::retried(&member.route.name);
        Settlement::Retry(member.arrival.settling, delay)
    }

    /// Writes a dead letter under the member's claim. If a committed row refuses that, the member is a duplicate after all.
    pub(crate) async fn dead_letter(&self, member: Member<Db>, reason: Reason, error: &str, attempts: u32) -> Answer {
        let Member { arrival, route, claim, .. } = member;
        let key = claim.identity.name().clone();
        let (identity, payload) = (LetterIdentity::Key(key.clone()), claim.payload);
        let letter = (identity, Some(claim));
        match self.write_letter(arrival, (route.id, &route.name), letter, (reason, error, attempts)).await {
            Ok(proof) if matches!(proof.how(), How::DeadLettered(_)) => {
                Settlement::DeadLettered(proof.map(|arrival| arrival.settling))
            }
            Ok(proof) => Box::pin(self.acknowledge_duplicate(proof, &route, (&key, payload))).await,
            Err(answer) => answer,
        }
    }

    /// Writes a dead letter that claims no key.
    pub(crate) async fn bury(
        &self,
        arrival: Arrival,
        consumer: (ConsumerId, &Arc<str>),
        identity: LetterIdentity,
        why: (Reason, &str, u32),
    ) -> Answer {
        match self.write_letter(arrival, consumer, (identity, None), why).await {
            Ok(proof) => Settlement::DeadLettered(proof.map(|arrival| arrival.settling)),
            Err(answer) => answer,
        }
    }

    /// The proof of a dead letter of this consumer, or of a duplicate; or the answer to a message whose letter was refused.
    async fn write_letter(
        &self,
        arrival: Arrival,
        (consumer, name): (ConsumerId, &Arc<str>),
        (identity, claim): (LetterIdentity, Option<Claim>),
        (reason, error, attempts): (Reason, &str, u32),
    ) -> Result<Committed<Arrival>, Answer> {
        let received = Arc::clone(&arrival.received);
        let redriven = arrival.redriven.as_ref().map(|redriven| redriven.id);
        let letter = NewLetter { consumer, identity, received: &received, reason, error, attempts, redriven };
        match bury(&self.inbox, claim, letter, arrival, Limits::BOOKKEEPING).await {
            Ok(proof) => {
                self.faults.reach(FaultPoint::DeadLetterCommitted);
                if matches!(proof.how(), How::DeadLettered(_)) {
                    tracing::error!(consumer = %name, %reason, error, "dead-lettered");
                    telemetry::dead_lettered(name, reason);
                }
                Ok(proof)
            }
            Err((error, arrival)) => {
                tracing::error!(consumer = %name, error = %error.chain(), "the dead letter was refused; the message stays with the broker");
                telemetry::dead_letter_refused(name);
                self.outage.look(&error);
                Err(Settlement::Retry(arrival.settling, self.options.retry.delay(1)))
            }
        }
    }
}
