//! Sources that end, or fail, while the consumer runs.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::broker::{
    BrokerError, Capabilities, Incoming, Lease, Settled, Settlement, Settler, Source as Receiving, Transport, Wanted,
};
use inboxed::{BoxError, Decode, Json, Received, State, idempotent};
use sqlx::SqliteConnection;

use super::common::within;
use super::support::{Order, Shop, effect, order, record, until};

/// A broker whose sources open, hand this out, each the next, and then fail so.
#[derive(Clone)]
struct Broker {
    opened: Arc<AtomicU32>,
    message: Option<u64>,
    then: fn() -> BrokerError,
}

impl Broker {
    fn new(message: Option<u64>, then: fn() -> BrokerError) -> Self {
        Self { opened: Arc::default(), message, then }
    }
}

impl Transport for Broker {
    type Source = Self;

    fn system(&self) -> &'static str {
        "test"
    }

    async fn open(&self, _: &str, _: &Wanted) -> Result<Self, BrokerError> {
        let before = self.opened.fetch_add(1, Ordering::SeqCst);
        let message = self.message.map(|first| first + u64::from(before));
        Ok(Self { message, ..self.clone() })
    }
}

impl Receiving for Broker {
    type Settler = Self;
    type Token = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn settler(&self) -> Self {
        self.clone()
    }

    async fn receive(&mut self, _: usize) -> Result<Vec<Incoming<()>>, BrokerError> {
        let id = self.message.take().ok_or_else(self.then)?;
        Ok(vec![Incoming {
            received: Received::new("orders", order(id)),
            token: (),
            leased_at: tokio::time::Instant::now(),
        }])
    }
}

impl Settler for Broker {
    type Token = ();

    async fn settle(&self, settlements: Vec<Settlement<()>>) -> Vec<Settled> {
        vec![Settled::Confirmed; settlements.len()]
    }

    async fn extend(&self, tokens: &[&()]) -> Vec<Lease> {
        vec![Lease::Held; tokens.len()]
    }
}

#[tokio::test]
async fn source_that_opens_and_fails_at_once_is_left_alone_for_longer_each_time() {
    let shop = Shop::open().await;
    let broker = Broker::new(None, || BrokerError::Unreachable("the channel was closed".into()));
    let consumer = shop.consumer().handle("orders", record);
    consumer.run_until(broker.clone(), tokio::time::sleep(Duration::from_millis(1500))).await.unwrap();
    // At once, then after at most 0.1 s, 0.2 s, 0.4 s and so on, or half of each.
    assert!((2..=6).contains(&broker.opened.load(Ordering::SeqCst)), "{}", broker.opened.load(Ordering::SeqCst));
}

#[idempotent(key = "order:{id}")]
async fn hangs(order: Order, tx: &mut SqliteConnection, State(begun): State<Arc<AtomicU32>>) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    begun.fetch_add(1, Ordering::SeqCst);
    pending().await
}

#[tokio::test]
async fn shutdown_is_heard_while_the_last_message_of_an_ended_source_runs() {
    let shop = Shop::open().await;
    let begun = Arc::new(AtomicU32::new(0));
    let consumer = shop.consumer().timeout(Duration::from_hours(1)).grace(Duration::from_millis(50));
    let consumer = consumer.state(Arc::clone(&begun)).handle("orders", hangs);
    let asked = until("the body runs", async || begun.load(Ordering::SeqCst) == 1);
    within(consumer.run_until(Broker::new(Some(7), || BrokerError::Ended), asked)).await.unwrap();
    assert_eq!((shop.effects().await, shop.failures().await), (0, 0));
}

/// Notes how many messages have had their turn: they are decoded then.
struct Counted(Arc<AtomicU32>);

impl Decode<Order> for Counted {
    fn decode(&self, received: &Received) -> Result<Order, BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Json.decode(received)
    }
}

/// A body outlives the connection that its message came by; the next connection brings no second one beside it.
#[tokio::test]
async fn source_that_is_opened_anew_has_no_more_room_than_before() {
    let shop = Shop::open().await;
    let (begun, turns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let consumer =
        shop.consumer().concurrency(1).prefetch(1).timeout(Duration::from_hours(1)).grace(Duration::from_millis(50));
    let consumer = consumer.state(Arc::clone(&begun)).handle_with("orders", hangs, Counted(Arc::clone(&turns)));
    let broker = Broker::new(Some(1), || BrokerError::Unreachable("cut".into()));
    let opened = Arc::clone(&broker.opened);
    let asked = async {
        until("it is opened anew", async || opened.load(Ordering::SeqCst) >= 2).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    within(consumer.run_until(broker, asked)).await.unwrap();
    assert_eq!((begun.load(Ordering::SeqCst), turns.load(Ordering::SeqCst)), (1, 1), "bodies, and turns");
}
