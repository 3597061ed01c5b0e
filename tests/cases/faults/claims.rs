//! Claims of one key that meet: the second waits for the first, and takes its outcome.

use std::sync::Arc;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Consumer, Inbox, Outcome, State, idempotent};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Connection, Db, ONE_WRITER, Shop, consumer, deliver, effect, record, run_dry};
use crate::common::{Event, child, event, within};

/// A body that says when it is entered, and waits to be let go unless it is open.
#[derive(Clone, Default)]
struct Gate {
    entered: Arc<Notify>,
    go: Arc<Notify>,
    open: bool,
    fails: bool,
}

#[idempotent(key = "event:{id}")]
async fn gated(message: Event, State(gate): State<Gate>, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    gate.entered.notify_one();
    if !gate.open {
        gate.go.notified().await;
    }
    if gate.fails { Err("rolled back".into()) } else { Ok(()) }
}

/// A consumer of its own, which has no word with the first but the database's, and whose bodies don't wait.
async fn second(shop: &Shop) -> Consumer<Db, Gate> {
    let inbox = Inbox::connect(&shop.url()).await.unwrap();
    let app = consumer(inbox).state(Gate { open: true, ..Gate::default() }).handle("events", gated);
    // What is opened once isn't to be waited for later.
    assert_eq!(deliver(&app, "events", event("before")).await, Outcome::Done);
    app
}

/// Delivers the message that the first claim is held for, which isn't answered yet, while others are.
async fn waiting(app: &Arc<Consumer<Db, Gate>>, id: &'static str) -> JoinHandle<Outcome> {
    let waits = Arc::clone(app);
    let waits = tokio::spawn(async move { deliver(&waits, "events", event(id)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    if !ONE_WRITER {
        assert_eq!(deliver(app, "events", event("another key")).await, Outcome::Done);
    }
    assert!(!waits.is_finished(), "it answered before the first claim was decided");
    waits
}

/// How many effects a message has.
async fn effects_of(shop: &Shop, id: &str) -> usize {
    shop.effects().await.iter().filter(|effect| *effect == id).count()
}

async fn outcomes(fails: bool) -> (Outcome, Outcome) {
    let shop = Shop::open().await;
    let gate = Gate { fails, ..Gate::default() };
    let first = shop.consumer().state(gate.clone()).handle("events", gated);
    let second = Arc::new(second(&shop).await);
    let first = tokio::spawn(async move { deliver(&first, "events", event("a")).await });
    within(gate.entered.notified()).await;
    let waits = waiting(&second, "a").await;
    gate.go.notify_one();
    let outcomes = (within(first).await.unwrap(), within(waits).await.unwrap());
    assert_eq!(effects_of(&shop, "a").await, 1);
    outcomes
}

#[tokio::test]
async fn p01_second_claim_waits_and_is_a_duplicate_when_the_first_commits() {
    assert_eq!(outcomes(false).await, (Outcome::Done, Outcome::Duplicate));
}

#[tokio::test]
async fn p01_second_claim_waits_and_runs_when_the_first_rolls_back() {
    let (first, second) = outcomes(true).await;
    assert!(matches!(first, Outcome::Retry(_)), "{first:?}");
    assert_eq!(second, Outcome::Done);
}

#[tokio::test]
async fn p01_second_claim_waits_and_runs_when_the_firsts_process_is_killed() {
    if let Some((_, database)) = child::role() {
        let gate = Gate::default();
        let app = consumer(Inbox::connect(&database).await.unwrap()).state(gate.clone()).handle("events", gated);
        let entered = async {
            gate.entered.notified().await;
            println!("entered");
            std::future::pending::<()>().await;
        };
        tokio::join!(deliver(&app, "events", event("a")), entered);
        return;
    }
    let shop = Shop::open().await;
    let second = Arc::new(second(&shop).await);
    let mut first = child::start("first", &shop.url());
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    while !within(lines.next_line()).await.unwrap().expect("it ended early").ends_with("entered") {}
    let waits = waiting(&second, "a").await;
    first.kill().await.unwrap();
    assert_eq!(within(waits).await.unwrap(), Outcome::Done);
    assert_eq!(effects_of(&shop, "a").await, 1);
}

#[tokio::test]
async fn p01_second_claim_that_waits_too_long_is_given_back_uncounted() {
    let shop = Shop::open().await;
    let gate = Gate::default();
    let first = shop.consumer().state(gate.clone()).handle("events", gated);
    let inbox = Inbox::connect(&shop.url()).await.unwrap();
    let hasty = consumer(inbox).timeout(Duration::from_millis(300)).state(Gate::default()).handle("events", gated);
    let first = tokio::spawn(async move { deliver(&first, "events", event("a")).await });
    within(gate.entered.notified()).await;
    let given_back = deliver(&hasty, "events", event("a")).await;
    assert!(matches!(given_back, Outcome::Retry(_)), "{given_back:?}");
    gate.go.notify_one();
    assert_eq!(within(first).await.unwrap(), Outcome::Done);
    assert_eq!(deliver(&hasty, "events", event("a")).await, Outcome::Duplicate);
    assert_eq!((shop.counted().await, effects_of(&shop, "a").await), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m02_new_and_repeated_keys_at_twenty_workers_have_one_effect_each() {
    let shop = Shop::open().await;
    let broker = Memory::builder().reorder(64).seed(2).build();
    for id in 0..2_000 {
        broker.publish("events", event(&format!("k{id}")));
        if id % 10 == 0 {
            broker.publish("events", event(&format!("k{id}")));
        }
    }
    let app = shop.consumer().concurrency(20).handle("events", record);
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(shop.effects().await.len(), 2_000);
    assert_eq!(shop.number("SELECT COUNT(DISTINCT message) FROM effects").await, 2_000);
    assert_eq!(broker.counts("events").deliveries, 2_200, "nothing was given back");
    assert!(shop.letters().await.is_empty());
}
