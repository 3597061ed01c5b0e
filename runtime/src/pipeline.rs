//! The one order:
//!
//! ```text
//! receive → too old? → decode → key → BEGIN and claim → effect → checked COMMIT → acknowledge
//!                                          └ refused by a committed row → ROLLBACK → acknowledge (duplicate)
//! ```
//!
//! Read [`Pipeline::handle`], [`Pipeline::prepare`], [`Pipeline::transaction`], [`Pipeline::effect`] and
//! [`Pipeline::conclude`] from top to bottom. What leaves this way is in `refusal.rs` (never runs), `failure.rs` (didn't
//! commit) and `suspect.rs` (may kill the process); only `proof.rs` can make what acknowledges.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::RwLock;

use crate::arrival::{Arrival, Duplicate, Member, Settling, settle};
use crate::broker::Settlement;
use crate::clock::Clock;
use crate::error::Error;
use crate::failure::BodyError;
use crate::fault::{FaultPoint, Faults};
use crate::in_flight::InFlight;
use crate::message::Delivery;
use crate::options::Options;
use crate::outage::Outage;
use crate::panic;
use crate::proof::{Committed, How, Uncommitted, Unit};
use crate::route::Routes;
use crate::store::{ConsumerId, Inbox, Limits, Store};
use crate::telemetry;

/// How long a body may run if nothing says otherwise and its lease is longer.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A longer one is without end, and no clock need count so far.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(365 * 24);

pub(crate) struct Pipeline<Db: Store> {
    pub inbox: Inbox<Db>,
    pub routes: Routes<Db>,
    /// The namespace of what no handler takes.
    pub unrouted: ConsumerId,
    pub unrouted_name: Arc<str>,
    pub options: Options,
    pub clock: Clock,
    pub outage: Outage<Db>,
    pub faults: Faults,
    /// Copies of running messages wait here.
    pub in_flight: InFlight<Duplicate>,
    /// Held shared by ordinary messages, and alone by one that is suspected of killing the process.
    pub alone: RwLock<()>,
}

/// An answer to one delivery.
pub(crate) type Answer = Settlement<Settling>;

/// Members whose transaction didn't commit.
pub(crate) struct Undone<Db: Store> {
    pub members: Vec<Member<Db>>,
    pub why: Why,
}

/// Why a transaction didn't commit.
pub(crate) enum Why {
    /// The database or a body failed; the class says what follows.
    Failed(Error),
    /// The grace period of a shutdown ended first.
    Ended,
    /// The commit was sent, and its outcome isn't known.
    Unknown(Error),
}

/// How a body left the transaction.
enum Failure {
    /// As the database has it: a rollback is enough.
    Returned(Error),
    /// In the middle of something: the connection is closed.
    Interrupted(Why),
}

impl<Db: Store> Pipeline<Db> {
    /// The one order, for a group of deliveries; one alone is a group of one. Runs in a task that nothing drops.
    ///
    /// What leaves the order is boxed wherever it is awaited: it is rare, and every message would carry its room.
    pub(crate) async fn handle(&self, group: Vec<Arrival>) {
        let mut answers = Vec::new();
        let mut members = Vec::new();
        for arrival in group {
            self.faults.reach(FaultPoint::Received);
            match self.prepare(arrival).await {
                Ok(member) => members.push(member),
                Err(answer) => answers.extend(answer),
            }
        }

        let members = self.set_copies_aside(members);
        self.faults.reach(FaultPoint::Keyed);

        answers.extend(self.run(members).await);

        self.faults.reach(FaultPoint::BeforeAcknowledge);
        settle(answers).await;
        self.faults.reach(FaultPoint::Acknowledged);
    }

    /// Too old? Decode, and derive the key. What can't go on has its answer here; a delivery whose lease is gone has
    /// none, since it is another's by now.
    async fn prepare(&self, arrival: Arrival) -> Result<Member<Db>, Option<Answer>> {
        if arrival.settling.lease.lost() {
            return Err(None);
        }
        // A dead letter keeps its handler, whatever its type was taken for.
        let known = arrival.redriven.as_ref().and_then(|redriven| self.routes.by_id(redriven.consumer));
        let route = match known.map_or_else(|| self.routes.find(&arrival.received), Ok) {
            Ok(route) => Arc::clone(route),
            Err(unrouted) => return Err(Some(Box::pin(self.unrouted(arrival, unrouted)).await)),
        };
        let too_old = self.too_old(&arrival, &route);
        match Member::new(arrival, route.clone()) {
            Ok(member) => match too_old {
                Some(age) => Err(Some(Box::pin(self.refuse_too_old(member, age)).await)),
                None => Ok(member),
            },
            Err((arrival, refusal)) => Err(Some(Box::pin(self.refuse(arrival, &route, refusal)).await)),
        }
    }

    /// Keeps one of each message; its copies wait for its outcome without a connection.
    fn set_copies_aside(&self, members: Vec<Member<Db>>) -> Vec<Member<Db>> {
        members.into_iter().filter_map(|member| member.enter(&self.in_flight)).collect()
    }

    /// Runs a group in one transaction. If that doesn't commit, each member runs alone, so that none is blamed for
    /// another's failure.
    async fn run(&self, members: Vec<Member<Db>>) -> Vec<Answer> {
        let mut answers = Vec::new();
        let (suspects, members) = self.part_suspects(members, &mut answers).await;
        for suspect in suspects {
            answers.extend(Box::pin(self.run_suspect(suspect)).await);
        }
        let _shared = self.alone.read().await;
        if members.len() < 2 {
            for member in members {
                answers.extend(self.run_alone(member).await);
            }
            return answers;
        }
        answers.extend(Box::pin(self.run_group(members)).await);
        answers
    }

    async fn run_group(&self, members: Vec<Member<Db>>) -> Vec<Answer> {
        let mut proofs = Vec::new();
        let undone = self.transaction(members, &mut proofs).await;
        let mut answers = self.conclude(proofs).await;
        if let Err(undone) = undone {
            for member in undone.members {
                answers.extend(self.run_alone(member).await);
            }
        }
        answers
    }

    /// BEGIN and claim → effect → checked COMMIT. Only `proofs` can be acknowledged.
    pub(crate) async fn transaction(
        &self,
        members: Vec<Member<Db>>,
        proofs: &mut Vec<Committed<Member<Db>>>,
    ) -> Result<(), Undone<Db>> {
        let limit = members.iter().map(|member| self.time_limit(member)).sum::<Duration>();
        let limits = Limits { claim: limit, run: limit };
        let claimed = members.into_iter().map(|member| (member.claim.clone(), member)).collect();

        let (unit, duplicates) = Unit::begin(&self.inbox, claimed, limits).await?;
        proofs.extend(duplicates);
        let Some(mut unit) = unit else { return Ok(()) };
        self.faults.reach(FaultPoint::Claimed);

        for index in 0..unit.len() {
            if let Err(failure) = self.effect(&mut unit, index).await {
                let (members, why) = match failure {
                    Failure::Returned(error) => (Box::pin(unit.rollback()).await, Why::Failed(error)),
                    Failure::Interrupted(why) => (Box::pin(unit.close()).await, why),
                };
                self.faults.reach(FaultPoint::RolledBack);
                return Err(Undone { members, why });
            }
        }

        self.faults.reach(FaultPoint::BeforeCommit);
        proofs.extend(unit.commit().await?);
        self.faults.reach(FaultPoint::Committed);
        Ok(())
    }

    /// Runs one member's body in the open transaction, and there forgets what its failures left behind.
    async fn effect(&self, unit: &mut Unit<Db, Member<Db>>, index: usize) -> Result<(), Failure> {
        let (connection, fresh) = unit.member(index);
        let member = &mut fresh.member;
        let message = member.message().map_err(|refusal| Failure::Returned(refusal.into()))?;
        let attempt = fresh.prior.map_or(0, |prior| prior.failures).saturating_add(1);
        let arrival = &member.arrival;
        let delivery = Delivery::new(Arc::clone(&arrival.received), attempt, arrival.settling.lease.clone());
        let limit = self.time_limit(member);

        let started_at = tokio::time::Instant::now();
        let mut body = member.route.handler.run(message, connection, fresh.claim.identity.name(), &delivery);
        let returned = tokio::select! {
            returned = AssertUnwindSafe(&mut body).catch_unwind() => Ok(returned),
            () = tokio::time::sleep(limit) => Err(Why::Failed(BodyError::Deadline(limit).into())),
            () = member.arrival.end.cancelled() => Err(Why::Ended),
        };
        // What the body still holds may panic when it is dropped; its outcome stands already.
        let _ = panic::guard(|| drop(body));
        let returned = returned.map_err(Failure::Interrupted)?;
        telemetry::effect_time(&member.route.name, started_at.elapsed());
        match returned {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::Returned(error)),
            Err(panic) => {
                return Err(Failure::Interrupted(Why::Failed(BodyError::Panicked(panic::text(panic)).into())));
            }
        }
        self.faults.reach(FaultPoint::EffectDone);

        if fresh.prior.is_some() || member.arrival.redriven.is_some() {
            let letter = member.arrival.redriven.as_ref().map(|redriven| redriven.id);
            let (connection, fresh) = unit.member(index);
            let forgotten = Box::pin(self.inbox.forget_failures(connection, &fresh.claim, letter)).await;
            if let Err(error) = forgotten {
                // The body's failure if it has ended the transaction, else our own.
                unit.check().await.map_err(Failure::Returned)?;
                return Err(Failure::Returned(error.of_the_inbox()));
            }
        }
        if unit.len() > 1 {
            unit.check().await.map_err(Failure::Returned)?;
        }
        Ok(())
    }

    /// The acknowledgements that proofs allow: each of its own delivery, and of the copies that waited for it.
    pub(crate) async fn conclude(&self, proofs: Vec<Committed<Member<Db>>>) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(proofs.len());
        for mut proof in proofs {
            let copies = proof.get_mut().take_copies();
            let (route, claim) = (Arc::clone(&proof.get().route), proof.get().claim.clone());
            let key = claim.identity.name();
            for copy in copies {
                let covered = proof.covering(copy.arrival, copy.payload == claim.payload);
                answers.push(Box::pin(self.acknowledge_duplicate(covered, &route, (key, copy.payload))).await);
            }
            answers.push(if proof.how() == How::Effect {
                telemetry::handled(&route.name);
                Settlement::Ack(proof.map(|member| member.arrival.settling))
            } else {
                let proof = proof.map(|member| member.arrival);
                Box::pin(self.acknowledge_duplicate(proof, &route, (key, claim.payload))).await
            });
        }
        answers
    }

    /// How long a member's body may run: its own limit, else the consumer's, else 30 s or two thirds of its lease.
    fn time_limit(&self, member: &Member<Db>) -> Duration {
        let by_lease = || member.arrival.settling.lease.length().map_or(DEFAULT_TIMEOUT, |lease| lease / 3 * 2);
        let own = member.route.handler.spec().timeout.or(self.options.timeout);
        own.unwrap_or_else(|| by_lease().min(DEFAULT_TIMEOUT)).min(LONGEST_TIMEOUT)
    }
}

impl<Db: Store> From<Uncommitted<Member<Db>>> for Undone<Db> {
    fn from(uncommitted: Uncommitted<Member<Db>>) -> Self {
        let Uncommitted { members, error, unknown } = uncommitted;
        Self { members, why: if unknown { Why::Unknown(error) } else { Why::Failed(error) } }
    }
}
