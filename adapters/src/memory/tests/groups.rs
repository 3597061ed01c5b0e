use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::memory::message::Stored;
use crate::memory::readers::Readers;

fn publish(broker: &Memory, count: usize) {
    for number in 0..count {
        broker.publish("orders", number.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn each_group_gets_every_message_and_settles_its_own() {
    let broker = Memory::builder().lease(LEASE).build();
    let (billing, shipping) = (broker.group("billing"), broker.group("shipping"));
    let (mut bills, mut ships) = (orders(&billing).await, orders(&shipping).await);
    publish(&broker, 50);

    assert_eq!(drain(&mut bills).await.len(), 50);
    assert_eq!(shipping.counts("orders").waiting, 50);
    assert_eq!(drain(&mut ships).await.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn consumers_of_a_group_compete() {
    let broker = Memory::builder().lease(LEASE).build();
    let (mut first, mut second) = (orders(&broker).await, orders(&broker).await);
    publish(&broker, 10);
    let (one, two) = (first.receive(4).await.unwrap(), second.receive(100).await.unwrap());

    let positions = one.iter().chain(&two).filter_map(|delivery| delivery.received.position);
    assert_eq!((one.len(), two.len()), (4, 6));
    assert_eq!(positions.collect::<BTreeSet<_>>(), (1..=10).collect());
}

#[tokio::test(start_paused = true)]
async fn token_settles_nothing_in_another_group() {
    let broker = Memory::builder().lease(LEASE).build();
    let (mut bills, mut ships) = (orders(&broker.group("billing")).await, orders(&broker.group("shipping")).await);
    publish(&broker, 1);
    let (bill, ship) = (one(&mut bills).await, one(&mut ships).await);

    assert_eq!(acknowledge(&ships, bill.token), Settled::Lost);
    assert_eq!(acknowledge(&ships, ship.token), Settled::Confirmed);
    assert_eq!(one(&mut bills).await.received.delivery_count, 2);
}

#[tokio::test(start_paused = true)]
async fn late_group_gets_what_was_published_before() {
    let broker = Memory::builder().lease(LEASE).build();
    for round in 1..=3 {
        publish(&broker, 10);
        let mut late = orders(&broker.group(format!("late-{round}"))).await;
        assert_eq!(drain(&mut late).await.len(), round * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn without_replay_only_the_first_group_gets_what_was_published_before() {
    let broker = Memory::builder().lease(LEASE).without_replay().build();
    publish(&broker, 10);
    let mut first = orders(&broker.group("first")).await;
    publish(&broker, 5);
    let mut second = orders(&broker.group("second")).await;
    publish(&broker, 3);

    assert!(!first.capabilities().replay);
    assert_eq!(drain(&mut first).await.len(), 18);
    assert_eq!(drain(&mut second).await.len(), 3);
}

#[test]
fn log_keeps_nothing_beyond_the_retention() {
    let now = Instant::now();
    let mut readers = Readers::new(true);
    let old = Arc::new(Stored::new("old".into(), 1, now, LEASE));
    let kept = Arc::downgrade(&old);
    readers.admit(old, now);
    assert!(kept.upgrade().is_some());
    readers.admit(Arc::new(Stored::new("new".into(), 2, now + LEASE, LEASE)), now + LEASE);
    assert!(kept.upgrade().is_none());
}
