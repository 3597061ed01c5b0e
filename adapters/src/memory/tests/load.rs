use std::collections::BTreeSet;

use super::*;
use crate::memory::Message;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_of_twenty_publishers_all_arrive() {
    let broker =
        Memory::builder().lease(Duration::from_millis(50)).duplicates(0.05).lose_acks(0.05).reorder(32).build();
    let consumers = (0..8_u64).map(|consumer| {
        let broker = broker.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(consumer);
            let mut acknowledged = Vec::new();
            let mut source = orders(&broker).await;
            while let Ok(deliveries) = source.receive(16).await {
                for delivery in deliveries {
                    match rng.u8(..) {
                        0..5 => drop(delivery),
                        5..10 => drop(release(&source, delivery.token).await),
                        10..15 => drop(retry(&source, delivery.token, Duration::from_millis(20)).await),
                        _ if acknowledge(&source, delivery.token) == Settled::Confirmed => {
                            acknowledged.push(text(&delivery.received).parse::<u32>().unwrap());
                        }
                        _ => {}
                    }
                }
            }
            acknowledged
        })
    });
    let consumers = consumers.collect::<Vec<_>>();
    let publishers = (0..20_u32).map(|publisher| {
        let broker = broker.clone();
        tokio::spawn(async move {
            for number in 0..500 {
                let message = Message::new((publisher * 500 + number).to_string());
                let message = if number % 2 == 0 { message.key(publisher.to_string()) } else { message };
                broker.publish("orders", message);
                tokio::task::yield_now().await;
            }
        })
    });
    for publisher in publishers.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    broker.end_when_settled("orders");

    let mut arrived = BTreeSet::new();
    for consumer in consumers {
        arrived.extend(timeout(Duration::from_mins(1), consumer).await.unwrap().unwrap());
    }
    let counts = broker.counts("orders");
    assert_eq!(arrived, (0..10_000).collect());
    assert_eq!((counts.published, counts.waiting, counts.in_flight), (10_000, 0, 0));
    assert!(counts.lost_acks > 0 && counts.deliveries > 10_500, "{counts:?}");
}
