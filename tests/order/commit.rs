//! Claim and effect commit together, and only what is committed is acknowledged.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inboxed::Outcome;
use inboxed::memory::Memory;
use inboxed::testing::FaultPoint;

use super::support::{Script, Shop, deliver, order, record, run_to_the_end, until};

#[tokio::test]
async fn claim_and_effect_are_committed_together() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 1));
    assert_eq!(shop.number("SELECT message_key = 'order:7' FROM inbox").await, 1);
}

#[tokio::test]
async fn redelivery_is_a_duplicate_and_its_body_never_runs() {
    let shop = Shop::open().await;
    let script = Script::fails(0);
    let consumer = shop.scripted(&script);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    for _ in 0..3 {
        assert_eq!(deliver(&consumer, 7).await, Outcome::Duplicate);
    }
    assert_eq!((script.runs(), shop.effects().await), (1, 1));
}

#[tokio::test]
async fn duplicate_is_noticed_by_the_next_process() {
    let shop = Shop::open().await;
    assert_eq!(deliver(&shop.consumer().handle("orders", record), 7).await, Outcome::Done);
    assert_eq!(deliver(&shop.consumer().handle("orders", record), 7).await, Outcome::Duplicate);
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn copies_in_two_processes_at_once_have_one_effect() {
    let shop = Shop::open().await;
    let processes = [shop.consumer().handle("orders", record), shop.consumer().handle("orders", record)];
    for id in 0..20 {
        let (one, other) = tokio::join!(deliver(&processes[0], id), deliver(&processes[1], id));
        assert!([(Outcome::Done, Outcome::Duplicate), (Outcome::Duplicate, Outcome::Done)].contains(&(one, other)));
    }
    assert_eq!(shop.effects().await, 20);
}

#[tokio::test]
async fn redelivery_after_lost_ack_has_one_effect() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lose_ack_if(|delivery| delivery.delivery_count < 4).build();
    for id in 0..10 {
        broker.publish("orders", order(id));
    }
    run_to_the_end(&shop.consumer().handle("orders", record), &broker, &["orders"]).await;
    let counts = broker.counts("orders");
    assert_eq!((counts.deliveries, counts.lost_acks, counts.acknowledged), (40, 30, 10));
    assert_eq!(shop.effects().await, 10);
}

/// A process dies at the point; then a new one takes over.
async fn process_dies_at(point: FaultPoint) {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(Duration::from_millis(300)).build();
    broker.publish("orders", order(7));

    let dead = Arc::new(AtomicBool::new(false));
    let dies = Arc::clone(&dead);
    let first = shop.consumer().timeout(Duration::from_secs(10)).handle("orders", record).on_fault_point(move |at| {
        if at == point {
            dies.store(true, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("the process dies"));
        }
    });
    tokio::select! {
        ended = first.run_until(broker.clone(), pending()) => panic!("{point}: {ended:?}"),
        () = until("the process dies", async || dead.load(Ordering::SeqCst)) => {}
    }
    let committed = [FaultPoint::Committed, FaultPoint::BeforeAcknowledge, FaultPoint::Acknowledged].contains(&point);
    assert_eq!(shop.effects().await, i64::from(committed), "{point}: effects when it died");
    assert_eq!(shop.claims().await, i64::from(committed), "{point}: claims when it died");
    let acknowledged = u64::from(point == FaultPoint::Acknowledged);
    assert_eq!(broker.counts("orders").acknowledged, acknowledged, "{point}: acknowledged when it died");

    let second = shop.consumer().timeout(Duration::from_secs(10)).handle("orders", record);
    run_to_the_end(&second, &broker, &["orders"]).await;
    assert_eq!((shop.effects().await, broker.counts("orders").acknowledged), (1, 1), "{point}: after the takeover");
    assert_eq!(shop.failures().await, 0, "{point}: a crash is no failure of the body");
}

#[tokio::test]
async fn nothing_is_acknowledged_before_its_commit_wherever_the_process_dies() {
    for point in FaultPoint::SUCCESS {
        process_dies_at(point).await;
    }
}

#[tokio::test]
async fn points_are_passed_in_the_one_order() {
    let shop = Shop::open().await;
    let passed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let passing = Arc::clone(&passed);
    let consumer = shop.consumer().handle("orders", record).on_fault_point(move |at| passing.lock().unwrap().push(at));
    deliver(&consumer, 7).await;
    // The last lies behind the outcome.
    until("the order ends", async || passed.lock().unwrap().len() >= FaultPoint::SUCCESS.len()).await;
    assert_eq!(*passed.lock().unwrap(), FaultPoint::SUCCESS);
}
