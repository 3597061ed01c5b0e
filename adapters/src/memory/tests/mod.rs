//! Each property on tokio's paused clock, which moves on by itself to the next moment that anybody waits for.

mod faults;
mod groups;
mod leases;
mod load;
mod no_loss;
mod order;

use std::time::Duration;

use inboxed_runtime::Received;
use inboxed_runtime::broker::{Incoming, Settled, Settlement, Settler, Source};
use tokio::time::timeout;

use super::{Memory, MemorySource, MemoryToken};

const LEASE: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(5);
const JUST_UNDER_A_LEASE: Duration = LEASE.saturating_sub(A_MOMENT);

async fn orders(broker: &Memory) -> MemorySource {
    broker.open("orders").await.unwrap()
}

/// Receives the one message that is there or about to come.
async fn one(source: &mut MemorySource) -> Incoming<MemoryToken> {
    let received = timeout(Duration::from_hours(1), source.receive(1)).await.expect("a message within an hour");
    received.unwrap().remove(0)
}

/// Whether nothing comes for this long.
async fn nothing_for(source: &mut MemorySource, time: Duration) -> bool {
    timeout(time, source.receive(1)).await.is_err()
}

fn acknowledge(source: &MemorySource, token: MemoryToken) -> Settled {
    source.settler().acknowledge_without_proof(token)
}

async fn retry(source: &MemorySource, token: MemoryToken, delay: Duration) -> Settled {
    source.settler().settle(vec![Settlement::Retry(token, delay)]).await.remove(0)
}

async fn release(source: &MemorySource, token: MemoryToken) -> Settled {
    source.settler().settle(vec![Settlement::Release(token)]).await.remove(0)
}

fn text(received: &Received) -> &str {
    std::str::from_utf8(&received.body).unwrap()
}

/// Receives and acknowledges until nothing comes any more.
async fn drain(source: &mut MemorySource) -> Vec<Received> {
    let mut drained = Vec::new();
    while let Ok(deliveries) = timeout(2 * LEASE, source.receive(7)).await {
        for delivery in deliveries.unwrap() {
            acknowledge(source, delivery.token);
            drained.push(delivery.received);
        }
    }
    drained
}
