use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::memory::Builder;

async fn deliveries(builder: Builder, messages: usize) -> Vec<(u64, u32)> {
    let broker = builder.lease(LEASE).build();
    let mut source = orders(&broker).await;
    for number in 0..messages {
        broker.publish("orders", number.to_string());
    }
    let drained = drain(&mut source).await;
    drained.iter().map(|received| (received.position.unwrap(), received.delivery_count)).collect()
}

#[tokio::test(start_paused = true)]
async fn faults_repeat_with_the_seed() {
    let faulty = || Memory::builder().duplicates(0.1).lose_acks(0.1).reorder(10);
    let first = deliveries(faulty().seed(1), 200).await;
    assert_eq!(first, deliveries(faulty().seed(1), 200).await);
    assert_ne!(first, deliveries(faulty().seed(2), 200).await);
}

#[tokio::test(start_paused = true)]
async fn asked_share_of_deliveries_comes_twice() {
    let deliveries = deliveries(Memory::builder().duplicates(0.1), 2000).await;
    let mut times = HashMap::new();
    for (position, _) in &deliveries {
        *times.entry(position).or_insert(0) += 1;
    }
    let twice = times.values().filter(|times| **times == 2).count();
    assert_eq!((times.len(), deliveries.len()), (2000, 2000 + twice));
    assert!((150..250).contains(&twice), "{twice} of 2,000 came twice");
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_message_may_come_in_one_batch() {
    let broker = Memory::builder().duplicates(1.0).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let batch = source.receive(10).await.unwrap();
    assert_eq!(batch.iter().map(|delivery| delivery.received.delivery_count).collect::<Vec<_>>(), [1, 2]);
    for delivery in batch {
        assert_eq!(acknowledge(&source, delivery.token), Settled::Confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn message_whose_acknowledgement_was_lost_comes_again_at_once() {
    let lost = AtomicUsize::new(0);
    let broker =
        Memory::builder().lose_ack_if(move |delivery| delivery.body == "1" && lost.fetch_add(1, Ordering::Relaxed) < 2);
    let broker = broker.build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    for (count, settled) in [(1, Settled::Lost), (2, Settled::Lost), (3, Settled::Confirmed)] {
        let delivery = timeout(A_MOMENT, one(&mut source)).await.unwrap();
        assert_eq!(delivery.received.delivery_count, count);
        assert_eq!(acknowledge(&source, delivery.token), settled);
    }
    assert_eq!(broker.counts("orders").lost_acks, 2);
    broker.settled("orders").await;
}

#[tokio::test(start_paused = true)]
async fn only_acknowledgements_are_lost() {
    let broker = Memory::builder().lose_acks(1.0).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", "1");
    let delivery = one(&mut source).await;
    assert_eq!(release(&source, delivery.token).await, Settled::Confirmed);
    let delivery = one(&mut source).await;
    assert_eq!(retry(&source, delivery.token, LEASE).await, Settled::Confirmed);
    let delivery = one(&mut source).await;
    assert_eq!(acknowledge(&source, delivery.token), Settled::Lost);
}
