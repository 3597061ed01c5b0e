//! What happens to a delivery that the one order can't bring to its end: refused, failed, suspected, too old.

use std::sync::Arc;
use std::time::Duration;

use crate::arrival::{Arrival, Member};
use crate::broker::Settlement;
use crate::error::{Class, Error};
use crate::fault::FaultPoint;
use crate::handler::{OnConflict, Refusal};
use crate::options::{UnknownType, margin};
use crate::pipeline::{Answer, Pipeline, Undone, Why};
use crate::proof::{Committed, How, bury};
use crate::route::{Registered, Unrouted};
use crate::store::{Claim, ConsumerId, LetterIdentity, Limits, NewLetter, Reason, Store};
use crate::telemetry::{self, Cause};

/// How often a message is run again at once when transactions meet.
const RERUNS: u32 = 5;

/// How many start markers without an end make a message poison.
const POISON_STARTS: u32 = 2;

impl<Db: Store> Pipeline<Db> {
    /// One member in a transaction of its own: the only runs whose failures are counted.
    pub(crate) async fn run_alone(&self, member: Member<Db>) -> Vec<Answer> {
        let mut member = member;
        let mut reruns = 0;
        loop {
            let mut proofs = Vec::with_capacity(1);
            let Err(Undone { mut members, why }) = self.transaction(vec![member], &mut proofs).await else {
                let mut answers = Vec::new();
                for proof in proofs {
                    answers.extend(self.conclude(proof).await);
                }
                return answers;
            };
            let Some(undone) = members.pop() else { return Vec::new() };
            member = undone;
            match why {
                Why::Failed(error) if error.class() == Class::Contention && reruns < RERUNS => {
                    reruns += 1;
                    telemetry::rerun(&member.route.name);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=10 * u64::from(reruns)))).await;
                }
                why => return self.fail(member, why).await,
            }
        }
    }

    /// The answer to a member that didn't commit, and to the copies that waited for it.
    async fn fail(&self, mut member: Member<Db>, why: Why) -> Vec<Answer> {
        let copies = member.take_copies();
        let answer = match why {
            Why::Ended => Settlement::Release(member.arrival.settling),
            Why::Unknown(error) => self.give_back(member, &error),
            Why::Failed(error) => match error.class() {
                Class::Contention | Class::Unavailable => self.give_back(member, &error),
                Class::Failure | Class::Permanent => self.count_failure(member, &error).await,
            },
        };
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

    /// Writes a dead letter under the member's claim.
    async fn dead_letter(&self, member: Member<Db>, reason: Reason, error: &str, attempts: u32) -> Answer {
        let Member { arrival, route, claim, .. } = member;
        let identity = LetterIdentity::Key(claim.identity.name().clone());
        self.bury(arrival, (route.id, &route.name), (identity, Some(claim)), (reason, error, attempts)).await
    }

    /// Writes a dead letter for a message of this consumer, under its claim if it has one.
    async fn bury(
        &self,
        arrival: Arrival,
        (consumer, name): (ConsumerId, &Arc<str>),
        (identity, claim): (LetterIdentity, Option<Claim>),
        (reason, error, attempts): (Reason, &str, u32),
    ) -> Answer {
        let received = Arc::clone(&arrival.received);
        let redriven = arrival.redriven.as_ref().map(|redriven| redriven.id);
        let letter = NewLetter { consumer, identity, received: &received, reason, error, attempts, redriven };
        match bury(&self.inbox, claim, letter, arrival, Limits::BOOKKEEPING).await {
            Ok(proof) => {
                self.faults.reach(FaultPoint::DeadLetterCommitted);
                let dead = proof.how() == How::DeadLettered;
                let proof = proof.map(|arrival| arrival.settling);
                if dead {
                    tracing::error!(consumer = %name, %reason, error, "dead-lettered");
                    telemetry::dead_lettered(name, reason);
                    Settlement::DeadLettered(proof)
                } else {
                    telemetry::duplicate(name, Cause::Redelivery);
                    Settlement::Ack(proof)
                }
            }
            Err((error, arrival)) => {
                tracing::error!(consumer = %name, error = %error.chain(), "the dead letter was refused; the message stays with the broker");
                telemetry::dead_letter_refused(name);
                self.outage.look(&error);
                Settlement::Retry(arrival.settling, self.options.retry.delay(1))
            }
        }
    }

    /// Bytes that aren't a message, or a message without a key: dead-lettered at the first delivery, bytes intact.
    pub(crate) async fn refuse(&self, arrival: Arrival, route: &Registered<Db>, refusal: Refusal) -> Answer {
        let reason = match refusal {
            Refusal::Undecodable(_) => Reason::Undecodable,
            Refusal::Key(_) => Reason::BadKey,
        };
        let error = Error::from(refusal).chain();
        let identity = LetterIdentity::of_bytes(&arrival.received);
        self.bury(arrival, (route.id, &route.name), (identity, None), (reason, &error, 0)).await
    }

    /// A message that no handler takes: given back, dead-lettered or skipped, as the consumer declares.
    pub(crate) async fn unrouted(&self, arrival: Arrival, unrouted: Unrouted) -> Answer {
        let error = Error::from(unrouted);
        let reason = match error.get_ref().downcast_ref() {
            Some(Unrouted::NotJson(_)) => Reason::Undecodable,
            _ => Reason::UnknownType,
        };
        let source = &arrival.received.source;
        match self.options.unknown_type {
            _ if reason == Reason::Undecodable => {}
            UnknownType::DeadLetter => {}
            UnknownType::Skip => {
                tracing::warn!(%source, "skipped a message of unknown type");
                telemetry::unknown_type(source);
                return Settlement::Ack(Committed::skipped(arrival.settling));
            }
            UnknownType::GiveBack => {
                tracing::warn!(%source, "no handler for this type of message here; given back for a newer process");
                telemetry::unknown_type(source);
                let delay = self.options.retry.delay(arrival.received.delivery_count);
                return Settlement::Retry(arrival.settling, delay);
            }
        }
        let consumer = (self.unrouted, &self.unrouted_name);
        let identity = LetterIdentity::of_bytes(&arrival.received);
        self.bury(arrival, consumer, (identity, None), (reason, &error.chain(), 0)).await
    }

    /// The age of a delivery whose claim may have been pruned already. An open letter keeps the claims of its key; one
    /// that has no key can't.
    pub(crate) fn too_old(&self, arrival: &Arrival, route: &Registered<Db>) -> Option<Duration> {
        let redriven = arrival.redriven.as_ref();
        if redriven.is_some_and(|redriven| redriven.at_any_age) {
            return None;
        }
        let retention = self.options.retention_of(&route.handler.spec());
        let age = self.clock.age(arrival.received.sent_at.or(redriven.map(|redriven| redriven.first_at))?);
        (age > retention.saturating_sub(margin(retention))).then_some(age)
    }

    pub(crate) async fn refuse_too_old(&self, member: Member<Db>, age: Duration) -> Answer {
        let error = format!(
            "the message is {age:?} old, beyond the retention of claims: whether it was handled before can't be known; \
             look, then `redrive_forced` or `discard`"
        );
        self.dead_letter(member, Reason::TooOld, &error, 0).await
    }

    /// The acknowledgement of a duplicate, with its cause; a key conflict is kept as a dead letter if its handler says so.
    pub(crate) async fn acknowledge_duplicate(
        &self,
        proof: Committed<Arrival>,
        route: &Registered<Db>,
        claim: &Claim,
    ) -> Answer {
        let received = &proof.get().received;
        let same_payload = matches!(proof.how(), How::Duplicate { same_payload: true });
        let cause = if received.redelivered || received.delivery_count > 1 || proof.get().redriven.is_some() {
            Cause::Redelivery
        } else if same_payload {
            Cause::ProducerRetry
        } else {
            Cause::KeyConflict
        };
        telemetry::duplicate(&route.name, cause);
        let key = claim.identity.name();
        if cause != Cause::KeyConflict {
            tracing::debug!(consumer = %route.name, %key, ?cause, "duplicate");
            return Settlement::Ack(proof.map(|arrival| arrival.settling));
        }
        tracing::warn!(consumer = %route.name, %key, "key conflict: another payload was handled under this key");
        if route.handler.spec().on_conflict == OnConflict::Acknowledge {
            return Settlement::Ack(proof.map(|arrival| arrival.settling));
        }
        let why = (Reason::KeyConflict, "another payload was handled under this key", 0);
        let identity = LetterIdentity::Conflict(key.clone(), claim.payload);
        self.bury(proof.into_token(), (route.id, &route.name), (identity, None), why).await
    }

    /// Parts the messages that were redelivered often without a recorded failure: one of them may kill the process.
    pub(crate) async fn part_suspects(
        &self,
        members: Vec<Member<Db>>,
        answers: &mut Vec<Answer>,
    ) -> (Vec<Member<Db>>, Vec<Member<Db>>) {
        let (mut suspects, mut others) = (Vec::new(), Vec::new());
        for member in members {
            let redeliveries = member.arrival.received.delivery_count.saturating_sub(1);
            if redeliveries < self.options.suspect_after {
                others.push(member);
                continue;
            }
            match self.inbox.attempts(&member.claim).await {
                Ok(prior) if redeliveries.saturating_sub(prior.failures) >= self.options.suspect_after => {
                    suspects.push(member);
                }
                Ok(_) => others.push(member),
                Err(error) => answers.extend(self.fail(member, Why::Failed(error.of_the_inbox())).await),
            }
        }
        (suspects, others)
    }

    /// Runs a suspect with nothing beside it, a start marker committed first. Markers without an end make it poison.
    pub(crate) async fn run_suspect(&self, member: Member<Db>) -> Vec<Answer> {
        let _alone = self.alone.write().await;
        let claim = member.claim.clone();
        let started = match self.inbox.mark_start(&claim).await {
            Ok(started) => started,
            Err(error) => return self.fail(member, Why::Failed(error.of_the_inbox())).await,
        };
        if started.starts > POISON_STARTS {
            let error = format!("the process ended {POISON_STARTS} times while this message ran alone");
            let mut member = member;
            let copies = member.take_copies();
            let answer = self.dead_letter(member, Reason::Poison, &error, started.starts).await;
            let delay = self.options.retry.delay(1);
            let copies = copies.into_iter().map(|copy| Settlement::Retry(copy.arrival.settling, delay));
            return std::iter::once(answer).chain(copies).collect();
        }
        let answers = self.run_alone(member).await;
        if let Err(error) = self.inbox.mark_end(&claim).await {
            tracing::warn!(error = %error.chain(), "the end of a run alone wasn't recorded");
        }
        answers
    }
}
