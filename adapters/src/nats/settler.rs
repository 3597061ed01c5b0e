//! Settling deliveries, and keeping their leases.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::future::join_all;
use inboxed_runtime::broker::{Lease, Settled, Settlement, Settler};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::connection::Connection;

/// How long the server may take to confirm. Later, the settlement counts as lost.
const CONFIRMATION: Duration = Duration::from_secs(5);

/// The settling half of a source: as long as the connection that the deliveries came on.
#[derive(Clone, Debug)]
pub struct NatsSettler {
    pub(super) server: Connection,
    pub(super) lease: Duration,
}

/// What settles one delivery, once.
#[derive(Clone, Debug)]
pub struct NatsToken(Arc<Delivery>);

#[derive(Debug)]
struct Delivery {
    /// Where the server takes answers to it.
    reply: String,
    /// Held while something is said about the delivery: a signal of progress behind a negative acknowledgement would take
    /// its delay back.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settled: bool,
    lease_ends: Instant,
}

impl State {
    /// What is said about a delivery after its lease may be taken for another worker's word about his.
    fn is_over(&self) -> bool {
        self.settled || self.lease_ends <= Instant::now()
    }
}

impl NatsToken {
    pub(super) fn new(reply: String, lease_ends: Instant) -> Self {
        Self(Arc::new(Delivery { reply, state: Mutex::new(State { settled: false, lease_ends }) }))
    }
}

impl NatsSettler {
    async fn settle_one(&self, settlement: Settlement<NatsToken>) -> Settled {
        let (NatsToken(delivery), word) = match settlement {
            Settlement::Ack(proof) | Settlement::DeadLettered(proof) => (proof.into_token(), "+ACK".to_owned()),
            Settlement::Release(token) => (token, "-NAK".to_owned()),
            Settlement::Retry(token, delay) => (token, format!(r#"-NAK {{"delay":{}}}"#, delay.as_nanos())),
        };
        let mut state = delivery.state.lock().await;
        if state.is_over() {
            return Settled::Lost;
        }
        state.settled = true;
        match self.server.ask(&delivery.reply, word, CONFIRMATION).await {
            Ok(_) => Settled::Confirmed,
            Err(_) => Settled::Lost,
        }
    }

    async fn extend_one(&self, NatsToken(delivery): &NatsToken) -> Lease {
        let mut state = delivery.state.lock().await;
        if state.is_over() {
            return Lease::Lost;
        }
        let asked_at = Instant::now();
        // How long this may take is the caller's to say.
        if self.server.request(&delivery.reply, HeaderMap::new(), Bytes::from_static(b"+WPI")).await.is_err() {
            return Lease::Unknown;
        }
        state.lease_ends = asked_at + self.lease;
        Lease::Held
    }
}

impl Settler for NatsSettler {
    type Token = NatsToken;

    async fn settle(&self, settlements: Vec<Settlement<NatsToken>>) -> Vec<Settled> {
        join_all(settlements.into_iter().map(|settlement| self.settle_one(settlement))).await
    }

    async fn extend(&self, tokens: &[&NatsToken]) -> Vec<Lease> {
        join_all(tokens.iter().map(|token| self.extend_one(token))).await
    }
}
