//! A message that may kill its process is run alone, marked before it starts, and at last kept from running.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::{LetterState, Reason};
use inboxed::testing::FaultPoint;
use inboxed::{Consumer, Inbox, Outcome, RetryPolicy, RunError, State, idempotent};
use sqlx::{Sqlite, SqliteConnection};

use super::support::{Order, PATIENCE, Script, Shop, deliver, effect, order, run_to_the_end, scripted, until};

/// The order that kills its process.
const POISON: u64 = 13;

#[derive(Clone, Default)]
struct Watch {
    running: Arc<AtomicU32>,
    beside_poison: Arc<AtomicU32>,
    poison_starts: Arc<AtomicU32>,
    dead: Arc<AtomicBool>,
}

/// The body of the poisonous order takes its process down: the test ends the run, and the task never returns.
#[idempotent(key = "order:{id}")]
async fn deadly(order: Order, tx: &mut SqliteConnection, State(watch): State<Watch>) -> inboxed::Result<()> {
    let beside = watch.running.fetch_add(1, Ordering::SeqCst);
    effect(tx, order.id).await?;
    if order.id == POISON {
        watch.beside_poison.fetch_max(beside, Ordering::SeqCst);
        watch.poison_starts.fetch_add(1, Ordering::SeqCst);
        watch.dead.store(true, Ordering::SeqCst);
        pending::<()>().await;
    }
    tokio::task::yield_now().await;
    watch.running.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

async fn process(url: String, broker: Memory, watch: Watch) -> Result<(), RunError> {
    let inbox = Inbox::<Sqlite>::connect(&url).await?;
    let quick = RetryPolicy::default().backoff(Duration::from_millis(2), Duration::from_millis(10));
    let consumer = Consumer::new("shop", inbox).retry(quick).timeout(Duration::from_mins(5)).state(watch);
    consumer.handle("orders", deadly).run_until(broker, pending()).await
}

/// Each process has a runtime of its own, which ends with everything in it, as a process does.
#[test]
fn poison_is_dead_lettered_and_its_neighbours_are_handled_once() {
    let test = tokio::runtime::Runtime::new().unwrap();
    let (shop, broker) = test.block_on(async {
        let broker = Memory::builder().lease(Duration::from_millis(400)).build();
        for id in 0..30 {
            broker.publish("orders", order(id));
        }
        broker.end_when_settled("orders");
        (Shop::open().await, broker)
    });
    let mut kills = 0;
    let poison_starts = Arc::new(AtomicU32::new(0));
    loop {
        let watch = Watch { poison_starts: Arc::clone(&poison_starts), ..Watch::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let run = runtime.spawn(process(shop.url.clone(), broker.clone(), watch.clone()));
        let waited_since = std::time::Instant::now();
        while !run.is_finished() && !watch.dead.load(Ordering::SeqCst) {
            assert!(waited_since.elapsed() < PATIENCE, "neither an end nor a kill, after {kills}");
            std::thread::sleep(Duration::from_millis(2));
        }
        if run.is_finished() {
            test.block_on(run).unwrap().unwrap();
            break;
        }
        kills += 1;
        assert!(kills < 20, "the poison goes on killing");
        if poison_starts.load(Ordering::SeqCst) > 3 {
            assert_eq!(watch.beside_poison.load(Ordering::SeqCst), 0, "a suspect runs with nothing beside it");
        }
        runtime.shutdown_background();
    }
    test.block_on(async {
        let letter = shop.letter().await;
        assert_eq!((letter.reason, letter.key.unwrap().as_str()), (Reason::Poison, "order:13"));
        assert_eq!(shop.number("SELECT COUNT(*) FROM effects").await, 29);
        assert_eq!(shop.number("SELECT COUNT(DISTINCT id) FROM effects").await, 29);
        assert_eq!(shop.failures().await, 0, "no process's death is the body's failure");
    });
    assert_eq!(poison_starts.load(Ordering::SeqCst), kills);
    assert!((4..=6).contains(&kills), "three redeliveries, and two starts alone: {kills}");
}

#[tokio::test]
async fn suspect_that_succeeds_alone_leaves_no_mark() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(Duration::from_millis(200)).build();
    broker.publish("orders", order(7));
    let deaths = Arc::new(AtomicU32::new(0));
    let dies = Arc::clone(&deaths);
    let script = Script::fails(0);
    let consumer = shop.consumer().timeout(Duration::from_secs(10)).suspect_after(2).state(script.clone());
    let consumer = consumer.handle("orders", scripted).on_fault_point(move |at| {
        if at == FaultPoint::EffectDone && dies.fetch_add(1, Ordering::SeqCst) < 3 {
            std::panic::resume_unwind(Box::new("the task dies"));
        }
    });
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!((deaths.load(Ordering::SeqCst), shop.effects().await), (4, 1));
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);
    assert!(shop.letters().await.is_empty());
}

/// Deploys and outages raise the broker's count too: that alone never buries a message.
#[tokio::test]
async fn message_given_back_often_is_never_poison() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", order(7));
    let script = Script::new(|run| if run <= 30 { Err(sqlx::Error::PoolTimedOut.into()) } else { Ok(()) });
    run_to_the_end(&shop.scripted(&script), &broker, &["orders"]).await;
    assert_eq!((script.runs(), shop.effects().await), (31, 1));
    assert!(shop.letters().await.is_empty());
}

/// While the database can't take back the mark of a run alone, the message stays here: run elsewhere meanwhile, or here
/// again, each outage would count as a death.
#[tokio::test]
async fn outages_during_runs_alone_are_no_deaths() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(Duration::from_secs(2)).build();
    broker.publish("orders", order(7));
    let script = Script::new(|run| if run <= 5 { Err(sqlx::Error::PoolTimedOut.into()) } else { Ok(()) });
    let consumer = shop.scripted(&script);
    // It has started by this: tables with triggers would refuse that.
    assert!(matches!(deliver(&consumer, 1).await, Outcome::Retry(_)));
    let unended = "CREATE TRIGGER unended BEFORE UPDATE OF starts ON inbox_attempts WHEN NEW.starts = 0 \
                   BEGIN SELECT RAISE(ABORT, 'out of reach'); END";
    sqlx::raw_sql(unended).execute(shop.inbox.pool()).await.unwrap();
    let outage = async {
        until("it has run alone", async || script.runs() == 5).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!((script.runs(), broker.counts("orders").in_flight), (5, 1));
        sqlx::raw_sql("DROP TRIGGER unended").execute(shop.inbox.pool()).await.unwrap();
        broker.end_when_settled("orders");
    };
    let running = tokio::time::timeout(PATIENCE, consumer.run_until(broker.clone(), pending()));
    let (ran, ()) = tokio::join!(running, outage);
    ran.unwrap().unwrap();
    assert_eq!((script.runs(), shop.effects().await, shop.letters().await.len()), (6, 1, 0));
}

/// A letter comes from the table at its first delivery each time; its deaths are counted all the same.
#[test]
fn letter_that_kills_its_process_is_poison() {
    let test = tokio::runtime::Runtime::new().unwrap();
    let shop = test.block_on(async {
        let shop = Shop::open().await;
        let script = Script::new(|_| Err(inboxed::permanent("not yet")));
        let failing = shop.consumer().state(script).handle("orders", dies_as_a_letter);
        assert_eq!(deliver(&failing, POISON).await, Outcome::DeadLettered);
        shop.inbox.dead_letters().redrive(shop.letter().await.id).await.unwrap();
        shop
    });
    let mut kills = 0;
    while test.block_on(shop.letter()).state != LetterState::Open {
        let dead = Arc::new(AtomicBool::new(false));
        let kill = Arc::clone(&dead);
        let script = Script::new(move |_| {
            kill.store(true, Ordering::SeqCst);
            Ok(())
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let url = shop.url.clone();
        let run = runtime.spawn(async move {
            let inbox = Inbox::<Sqlite>::connect(&url).await.unwrap();
            let consumer = Consumer::new("shop", inbox).timeout(Duration::from_mins(5)).state(script);
            consumer.handle("orders", dies_as_a_letter).redrive().await.unwrap()
        });
        let waited_since = std::time::Instant::now();
        while !run.is_finished() && !dead.load(Ordering::SeqCst) {
            assert!(waited_since.elapsed() < PATIENCE, "neither an end nor a kill, after {kills}");
            std::thread::sleep(Duration::from_millis(2));
        }
        kills += u32::from(dead.load(Ordering::SeqCst));
        assert!(kills < 20, "the letter goes on killing");
        runtime.shutdown_background();
        // Its lease ends.
        let due = "UPDATE inbox_dead_letters SET redrive_at = 0 WHERE state = 'redrive'";
        test.block_on(async { sqlx::query(due).execute(shop.inbox.pool()).await.unwrap() });
    }
    let letter = test.block_on(shop.letter());
    assert_eq!((letter.reason, kills), (Reason::Poison, 2));
    assert_eq!(test.block_on(shop.effects()), 0);
}

/// Fails if the script does, and else never returns.
#[idempotent(key = "order:{id}")]
async fn dies_as_a_letter(
    order: Order,
    tx: &mut SqliteConnection,
    State(script): State<Script>,
) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    script.run()?;
    pending().await
}
