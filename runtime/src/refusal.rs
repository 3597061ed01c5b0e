//! Messages that never run: undecodable, without a key, of an unknown type, too old, or handled before.

use std::time::Duration;

use crate::arrival::{Arrival, Member};
use crate::broker::Settlement;
use crate::error::Error;
use crate::handler::{OnConflict, Refusal};
use crate::key::Key;
use crate::options::{UnknownType, margin};
use crate::pipeline::{Answer, Pipeline};
use crate::proof::{Committed, How};
use crate::route::{Registered, Unrouted};
use crate::store::{LetterIdentity, Reason, Store};
use crate::telemetry::{self, Cause};

impl<Db: Store> Pipeline<Db> {
    /// Bytes that aren't a message, or a message without a key: dead-lettered at the first delivery, bytes intact.
    pub(crate) async fn refuse(&self, arrival: Arrival, route: &Registered<Db>, refusal: Refusal) -> Answer {
        let reason = match refusal {
            Refusal::Undecodable(_) => Reason::Undecodable,
            Refusal::Key(_) => Reason::BadKey,
        };
        let error = Error::from(refusal).chain();
        let identity = LetterIdentity::of_bytes(&arrival.received);
        self.bury(arrival, (route.id, &route.name), identity, (reason, &error, 0)).await
    }

    /// A message that no handler takes: given back, dead-lettered or skipped, as the consumer declares.
    pub(crate) async fn unrouted(&self, arrival: Arrival, unrouted: Unrouted) -> Answer {
        let reason = match unrouted {
            Unrouted::NotJson(_) => Reason::Undecodable,
            Unrouted::UnknownType(_) => Reason::UnknownType,
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
        self.bury(arrival, consumer, identity, (reason, &Error::from(unrouted).chain(), 0)).await
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
        (key, payload): (&Key, i64),
    ) -> Answer {
        let received = &proof.get().received;
        let same_payload = matches!(proof.how(), How::Duplicate { same_payload: true });
        // A conflict may well be looked at for the first time when it is delivered for the second.
        let cause = if !same_payload {
            Cause::KeyConflict
        } else if received.redelivered || received.delivery_count > 1 || proof.get().redriven.is_some() {
            Cause::Redelivery
        } else {
            Cause::ProducerRetry
        };
        telemetry::duplicate(&route.name, cause);
        if cause != Cause::KeyConflict {
            tracing::debug!(consumer = %route.name, %key, ?cause, "duplicate");
            return Settlement::Ack(proof.map(|arrival| arrival.settling));
        }
        tracing::warn!(consumer = %route.name, %key, "key conflict: another payload was handled under this key");
        if route.handler.spec().on_conflict == OnConflict::Acknowledge {
            return Settlement::Ack(proof.map(|arrival| arrival.settling));
        }
        let why = (Reason::KeyConflict, "another payload was handled under this key", 0);
        let identity = LetterIdentity::Conflict(key.clone(), payload);
        self.bury(proof.into_token(), (route.id, &route.name), identity, why).await
    }
}
