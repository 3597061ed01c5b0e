//! A delivery on its way through the pipeline, with what settles it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::broker::{Settled, Settlement};
use crate::erased::{AnySettler, Token};
use crate::handler::{AnyMessage, Prepared, Refusal};
use crate::in_flight::{InFlight, Running};
use crate::lease::{Held, LeaseWatch};
use crate::message::Received;
use crate::route::Registered;
use crate::store::{Claim, Redriven, Store};
use crate::telemetry;

/// A delivery as it came in.
pub(crate) struct Arrival {
    pub received: Arc<Received>,
    pub settling: Settling,
    /// The dead letter that it comes from, if it comes from the table.
    pub redriven: Option<Redriven>,
    /// Ends its body: the grace period of the run that it came by is over.
    pub end: CancellationToken,
}

/// What settles one delivery.
pub(crate) struct Settling {
    pub source: Arc<str>,
    pub token: Token,
    pub settler: Arc<dyn AnySettler>,
    pub lease: LeaseWatch,
    /// Its place with the lease keeper, until it is settled.
    pub held: Option<Held>,
    /// Its place among the deliveries that are here, until it is settled.
    pub place: Option<OwnedSemaphorePermit>,
}

/// A delivery with its handler, its key and its message.
pub(crate) struct Member<Db: Store> {
    pub arrival: Arrival,
    pub route: Arc<Registered<Db>>,
    pub claim: Claim,
    /// The decoded message, until the body takes it.
    message: Option<AnyMessage>,
    /// The right to run it, once it has that.
    pub running: Option<Running<Duplicate>>,
}

/// A copy of a running message, set aside until that one's outcome is known.
pub(crate) struct Duplicate {
    pub arrival: Arrival,
    pub payload: i64,
}

impl<Db: Store> Member<Db> {
    #[allow(clippy::result_large_err, reason = "the arrival goes on either way, and is moved once")]
    pub(crate) fn new(arrival: Arrival, route: Arc<Registered<Db>>) -> Result<Self, (Arrival, Refusal)> {
        match route.handler.prepare(&arrival.received) {
            Ok(Prepared { identity, payload, message }) => {
                let claim = Claim { consumer: route.id, identity, payload };
                Ok(Self { arrival, route, claim, message: Some(message), running: None })
            }
            Err(refusal) => Err((arrival, refusal)),
        }
    }

    /// The message; decoded again from the bytes if an earlier run has used it up. The first key stays.
    pub(crate) fn message(&mut self) -> Result<AnyMessage, Refusal> {
        match self.message.take() {
            Some(message) => Ok(message),
            None => self.route.handler.prepare(&self.arrival.received).map(|prepared| prepared.message),
        }
    }

    /// The right to run, unless a copy is running: then this one is set aside, to be answered with that one.
    pub(crate) fn enter(mut self, in_flight: &InFlight<Duplicate>) -> Option<Self> {
        let copy = Duplicate { arrival: self.arrival, payload: self.claim.payload };
        let (running, copy) = in_flight.enter(self.claim.consumer, self.claim.identity.name(), copy).ok()?;
        self.running = Some(running);
        self.arrival = copy.arrival;
        Some(self)
    }

    /// The copies that waited for this one.
    pub(crate) fn take_copies(&mut self) -> Vec<Duplicate> {
        self.running.take().map(Running::finish).unwrap_or_default()
    }
}

/// Sends the answers, those of one source in one call, in order. Each delivery leaves the lease keeper first.
pub(crate) async fn settle(answers: Vec<Settlement<Settling>>) {
    let mut answers = answers.into_iter().peekable();
    while let Some(first) = answers.next() {
        let (settler, source) = (Arc::clone(&first.token().settler), Arc::clone(&first.token().source));
        let same = |next: &Settlement<Settling>| Arc::ptr_eq(&next.token().settler, &settler);
        let mut batch = vec![first];
        while let Some(next) = answers.next_if(same) {
            batch.push(next);
        }
        let mut places = Vec::with_capacity(batch.len());
        let mut release = |settling: Settling| {
            drop(settling.held);
            places.push(settling.place);
            settling.token
        };
        let batch = batch.into_iter().map(|answer| answer.map(&mut release)).collect();
        let settled = settler.settle(batch).await;
        drop(places);
        let lost = settled.iter().filter(|settled| **settled == Settled::Lost).count();
        telemetry::settlement_lost(&source, lost);
    }
}
