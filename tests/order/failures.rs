//! A body that fails is rolled back, its failure recorded, and the message tried again up to the limit.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use inboxed::memory::{Memory, Message};
use inboxed::store::{LetterState, Reason};
use inboxed::testing::FaultPoint;
use inboxed::{Error, Outcome, RetryPolicy, State, idempotent};
use sqlx::SqliteConnection;

use super::support::{Order, Script, Shop, deliver, deliver_to_the_end, effect, order, run_to_the_end, until};

#[tokio::test]
async fn failed_body_is_rolled_back_recorded_and_retried() {
    let shop = Shop::open().await;
    let script = Script::fails(1);
    let consumer = shop.scripted(&script);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
    assert_eq!(shop.number("SELECT last_error LIKE '%failure 1%' FROM inbox_attempts").await, 1);

    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 1));
    assert_eq!(shop.number("SELECT attempt FROM attempts").await, 2, "the attempt that succeeded");
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0, "a success forgets its failures");
}

#[tokio::test]
async fn failure_is_never_acknowledged() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", order(7));
    let script = Script::fails(2);
    let watched = (broker.clone(), Arc::new(AtomicU32::new(0)));
    let (seen_by, recorded) = watched.clone();
    let consumer = shop.scripted(&script).on_fault_point(move |at| {
        if at == FaultPoint::FailureRecorded {
            assert_eq!(seen_by.counts("orders").acknowledged, 0);
            recorded.fetch_add(1, Ordering::SeqCst);
        }
    });
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    let counts = broker.counts("orders");
    assert_eq!((watched.1.load(Ordering::SeqCst), counts.deliveries, counts.acknowledged), (2, 3, 1));
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn panic_is_a_failure_of_its_message_alone() {
    let shop = Shop::open().await;
    let script = Script::new(|run| if run == 1 { panic!("no stock of {}", "nails") } else { Ok(()) });
    let consumer = shop.scripted(&script);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
    assert_eq!(shop.number("SELECT last_error LIKE '%panicked: no stock of nails%' FROM inbox_attempts").await, 1);
    assert_eq!(deliver(&consumer, 8).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(shop.effects().await, 2);
}

/// Waits for ever in its first run.
#[idempotent(key = "order:{id}", timeout = "400ms")]
async fn hangs_once(
    order: Order,
    tx: &mut SqliteConnection,
    State(hung): State<Arc<AtomicBool>>,
) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    if !hung.swap(true, Ordering::SeqCst) {
        pending::<()>().await;
    }
    Ok(())
}

#[tokio::test]
async fn deadline_rolls_back_and_counts() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().state(Arc::new(AtomicBool::new(false))).handle("orders", hangs_once);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
    assert_eq!(shop.number("SELECT last_error LIKE '%longer than 400ms%timeout%' FROM inbox_attempts").await, 1);
    // The connection that was cut off is closed, and the write lock is free.
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(shop.effects().await, 1);
}

/// Keeps the database busy in one statement for longer than it may.
#[idempotent(key = "order:{id}", timeout = "600ms")]
async fn counts_for_ever(
    order: Order,
    tx: &mut SqliteConnection,
    State(hung): State<Arc<AtomicBool>>,
) -> inboxed::Result<()> {
    effect(&mut *tx, order.id).await?;
    if !hung.swap(true, Ordering::SeqCst) {
        let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";
        sqlx::query(long).fetch_one(tx).await?;
    }
    Ok(())
}

#[tokio::test]
async fn statement_beyond_the_deadline_is_ended_in_the_database() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().state(Arc::new(AtomicBool::new(false))).handle("orders", counts_for_ever);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.effects().await, shop.failures().await), (0, 1));
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn attempts_are_counted_exactly_and_end_in_a_dead_letter() {
    let shop = Shop::open().await;
    let script = Script::fails(u32::MAX);
    let broker = Memory::new();
    let message = Message::new(order(7)).header("type", "OrderPlaced").header("trace", vec![0, 159, 146, 150]);
    broker.publish("orders", message);
    run_to_the_end(&shop.scripted(&script), &broker, &["orders"]).await;

    assert_eq!((script.runs(), broker.counts("orders").deliveries), (3, 3));
    assert_eq!((shop.effects().await, shop.claims().await), (0, 0), "the letter's own claim is given up");
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.state, letter.attempts), (Reason::AttemptsExhausted, LetterState::Open, 3));
    assert_eq!((letter.consumer.as_str(), letter.source.as_str()), ("shop/scripted", "orders"));
    assert_eq!(letter.key.unwrap().as_str(), "order:7");
    assert_eq!(letter.body, Bytes::from(order(7)));
    let headers = letter.headers.iter().collect::<Vec<_>>();
    assert_eq!(headers, [("type", b"OrderPlaced".as_slice()), ("trace", &[0, 159, 146, 150])]);
    assert!(letter.error.contains("failure 3"), "{}", letter.error);
}

#[tokio::test]
async fn later_success_closes_the_letter() {
    let shop = Shop::open().await;
    let script = Script::fails(3);
    let consumer = shop.scripted(&script);
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    assert_eq!(shop.letter().await.state, LetterState::Open);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(shop.letter().await.state, LetterState::Done);
    assert_eq!(shop.effects().await, 1);
}

/// Another process has handled the message between the last failure and its dead letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn message_that_was_handled_meanwhile_gets_no_letter() {
    let shop = Shop::open().await;
    let reached = Arc::new(AtomicU32::new(0));
    let (entered, go_on) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
    let (enters, waits, failures) = (Arc::clone(&entered), Arc::clone(&go_on), Arc::clone(&reached));
    let failing = shop.scripted(&Script::fails(u32::MAX)).on_fault_point(move |at| {
        if at == FaultPoint::FailureRecorded && failures.fetch_add(1, Ordering::SeqCst) == 2 {
            enters.add_permits(1);
            while !waits.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let last = tokio::spawn(async move { deliver_to_the_end(&failing, 7).await });
    let rescue = async {
        entered.acquire().await.unwrap().forget();
        let outcome = deliver(&shop.scripted(&Script::fails(0)), 7).await;
        go_on.store(true, Ordering::SeqCst);
        outcome
    };
    assert_eq!(rescue.await, Outcome::Done);
    assert_eq!(last.await.unwrap(), Outcome::Duplicate);
    assert!(shop.letters().await.is_empty());
    assert_eq!(shop.effects().await, 1);
}

/// A process dies at a point of a failure's way; the next one goes on.
#[tokio::test]
async fn no_failure_is_lost_or_acknowledged_wherever_the_process_dies() {
    for point in FaultPoint::FAILURE {
        let shop = Shop::open().await;
        let broker = Memory::builder().lease(Duration::from_millis(300)).build();
        broker.publish("orders", order(7));
        let once = |script: &Script| {
            let limit = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(1), Duration::from_millis(2));
            shop.scripted(script).retry(limit).timeout(Duration::from_secs(10))
        };
        let dead = Arc::new(AtomicBool::new(false));
        let dies = Arc::clone(&dead);
        let script = Script::fails(u32::MAX);
        let first = once(&script).on_fault_point(move |at| {
            if at == point {
                dies.store(true, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new("the process dies"));
            }
        });
        tokio::select! {
            ended = first.run_until(broker.clone(), pending()) => panic!("{point}: {ended:?}"),
            () = until("the process dies", async || dead.load(Ordering::SeqCst)) => {}
        }
        assert_eq!((shop.effects().await, broker.counts("orders").acknowledged), (0, 0), "{point}");
        assert_eq!(shop.letters().await.len(), usize::from(point == FaultPoint::DeadLetterCommitted), "{point}");

        run_to_the_end(&once(&script), &broker, &["orders"]).await;
        let letter = shop.letter().await;
        assert_eq!((letter.state, letter.body), (LetterState::Open, Bytes::from(order(7))), "{point}");
        assert_eq!((shop.effects().await, shop.claims().await), (0, 0), "{point}");
    }
}

#[tokio::test]
async fn early_return_commits_and_question_mark_rolls_back() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", leaves_early);
    assert_eq!(deliver(&consumer, 2).await, Outcome::Done);
    assert!(matches!(deliver(&consumer, 3).await, Outcome::Retry(_)));
    assert_eq!((shop.effects().await, shop.claims().await), (1, 1));
}

#[idempotent(key = "order:{id}")]
async fn leaves_early(order: Order, tx: &mut SqliteConnection) -> Result<(), Error> {
    effect(tx, order.id).await?;
    if order.id.is_multiple_of(2) {
        return Ok(());
    }
    for word in ["1", "two"] {
        word.parse::<u8>()?;
    }
    Ok(())
}
