use inboxed_runtime::Headers;
use inboxed_runtime::broker::{BrokerError, Lease};
use tokio::time::{Instant, advance};

use super::*;
use crate::memory::Message;

#[tokio::test(start_paused = true)]
async fn message_arrives_as_it_was_published() {
    let broker = Memory::new();
    let mut source = orders(&broker).await;
    let sent_at = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    broker.publish("orders", "before");
    let message = Message::new(&b"\xff\xfe\0"[..]).header("Type", "OrderPlaced").header("trace", &b"\0"[..]);
    broker.publish("orders", message.sent_at(sent_at));

    one(&mut source).await;
    let Received { source, body, headers, sent_at: arrived, position, delivery_count, redelivered, .. } =
        one(&mut source).await.received;
    assert_eq!((&*source, &body[..]), ("orders", &b"\xff\xfe\0"[..]));
    assert_eq!(headers, Headers::from([("Type", &b"OrderPlaced"[..]), ("trace", &b"\0"[..])]));
    assert_eq!((arrived, position, delivery_count, redelivered), (Some(sent_at), Some(2), 1, false));
}

#[tokio::test(start_paused = true)]
async fn unsettled_delivery_comes_again_when_its_lease_ends() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let dropped = one(&mut source).await;
    drop(dropped);

    assert!(nothing_for(&mut source, JUST_UNDER_A_LEASE).await);
    let again = one(&mut source).await.received;
    assert_eq!((again.delivery_count, again.redelivered), (2, true));
}

#[tokio::test(start_paused = true)]
async fn waiting_consumer_gets_what_another_let_go() {
    let broker = Memory::builder().lease(LEASE).build();
    let (mut first, mut second) = (orders(&broker).await, orders(&broker).await);
    let waiting = tokio::spawn(async move { one(&mut second).await.received.delivery_count });
    tokio::task::yield_now().await;
    broker.publish("orders", "1");
    broker.publish("orders", "2");
    // Both are taken before the other wakes; it learns of the end of their lease all the same.
    let taken = first.receive(2).await.unwrap();

    assert_eq!(taken.len(), 2);
    assert_eq!(waiting.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn late_settlement_is_lost_and_changes_nothing() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let late = one(&mut source).await;
    advance(LEASE).await;
    assert_eq!(acknowledge(&source, late.token), Settled::Lost);

    let late = one(&mut source).await;
    advance(LEASE).await;
    assert_eq!(retry(&source, late.token, Duration::from_mins(1)).await, Settled::Lost);

    let start = Instant::now();
    let again = one(&mut source).await;
    assert_eq!((again.received.delivery_count, start.elapsed()), (3, Duration::ZERO));
    assert_eq!(acknowledge(&source, again.token), Settled::Confirmed);
    assert!(nothing_for(&mut source, 2 * LEASE).await);
}

#[tokio::test(start_paused = true)]
async fn extension_starts_the_lease_anew() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let delivery = one(&mut source).await;
    for _ in 0..3 {
        advance(JUST_UNDER_A_LEASE).await;
        assert_eq!(source.settler().extend(&[&delivery.token]).await, [Lease::Held]);
    }
    assert!(nothing_for(&mut source, JUST_UNDER_A_LEASE).await);

    advance(A_MOMENT).await;
    assert_eq!(source.settler().extend(&[&delivery.token]).await, [Lease::Lost]);
    assert_eq!(one(&mut source).await.received.delivery_count, 2);
}

#[tokio::test(start_paused = true)]
async fn retry_comes_no_sooner_than_its_delay() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let delivery = one(&mut source).await;
    let delay = 3 * LEASE;
    assert_eq!(retry(&source, delivery.token, delay).await, Settled::Confirmed);

    assert!(nothing_for(&mut source, 2 * LEASE + JUST_UNDER_A_LEASE).await);
    let again = one(&mut source).await.received;
    assert_eq!((again.delivery_count, again.redelivered), (2, true));
}

#[tokio::test(start_paused = true)]
async fn released_delivery_comes_again_at_once_behind_the_others() {
    let broker = Memory::new();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    broker.publish("orders", "2");
    let start = Instant::now();
    let delivery = one(&mut source).await;
    assert_eq!(release(&source, delivery.token).await, Settled::Confirmed);

    assert_eq!(text(&one(&mut source).await.received), "2");
    let again = one(&mut source).await.received;
    assert_eq!((text(&again), again.delivery_count, start.elapsed()), ("1", 2, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn receive_that_is_dropped_while_waiting_takes_nothing() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    tokio::select! {
        biased;
        _ = source.receive(1) => panic!("nothing was published"),
        // It is woken by this, and dropped before it runs again.
        _ = async { broker.publish("orders", "1") } => {}
    }
    assert_eq!(one(&mut source).await.received.delivery_count, 1);
}

#[tokio::test(start_paused = true)]
async fn settled_waits_for_the_last_message() {
    let broker = Memory::new();
    let mut source = orders(&broker).await;
    broker.settled("orders").await;
    broker.publish("orders", "1");
    broker.publish("orders", "2");
    let (first, second) = (one(&mut source).await, one(&mut source).await);
    acknowledge(&source, first.token);
    retry(&source, second.token, LEASE).await;
    assert!(timeout(A_MOMENT, broker.settled("orders")).await.is_err());

    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.settled("orders").await }
    });
    let again = one(&mut source).await;
    acknowledge(&source, again.token);
    timeout(A_MOMENT, waiting).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn source_ends_once_everything_is_settled() {
    let broker = Memory::builder().lease(LEASE).build();
    let (mut source, mut other) = (orders(&broker).await, orders(&broker).await);
    broker.publish("orders", "1");
    broker.end_when_settled("orders");
    let delivery = one(&mut source).await;
    assert!(nothing_for(&mut source, JUST_UNDER_A_LEASE).await);

    let waiting = tokio::spawn(async move { other.receive(1).await.map(|_| ()) });
    tokio::task::yield_now().await;
    assert_eq!(acknowledge(&source, delivery.token), Settled::Confirmed);
    assert!(matches!(waiting.await.unwrap(), Err(BrokerError::Ended)));
    assert!(matches!(source.receive(1).await, Err(BrokerError::Ended)));
}

#[tokio::test(start_paused = true)]
async fn message_older_than_the_retention_is_dropped_and_counted() {
    let broker = Memory::builder().lease(LEASE).retention(3 * LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", Message::new("old").key("a"));
    broker.publish("orders", Message::new("held").key("a"));
    let delivery = one(&mut source).await;
    advance(2 * LEASE).await;
    broker.publish("orders", Message::new("new").key("a"));
    advance(LEASE).await;

    assert_eq!(acknowledge(&source, delivery.token), Settled::Lost);
    assert_eq!(text(&one(&mut source).await.received), "new");
    assert_eq!(broker.counts("orders").expired, 2);
    assert_eq!(broker.group("late").counts("orders").waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn last_message_to_expire_ends_the_waiting() {
    let broker = Memory::builder().retention(LEASE).build();
    broker.publish("orders", "1");
    broker.end_when_settled("orders");
    let settled = tokio::spawn({
        let broker = broker.clone();
        async move { broker.settled("orders").await }
    });
    tokio::task::yield_now().await;
    advance(LEASE).await;

    assert!(matches!(orders(&broker).await.receive(1).await, Err(BrokerError::Ended)));
    timeout(A_MOMENT, settled).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn longest_lease_and_retention_are_no_moment_beyond_the_clock() {
    let broker = Memory::builder().lease(Duration::MAX).retention(Duration::MAX).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let delivery = one(&mut source).await;
    assert_eq!(source.settler().extend(&[&delivery.token]).await, [Lease::Held]);
}
