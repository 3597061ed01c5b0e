use std::collections::HashMap;

use tokio::time::Instant;

use super::*;
use crate::memory::Message;

#[tokio::test(start_paused = true)]
async fn second_message_of_a_key_is_held_until_the_first_is_settled() {
    let broker = Memory::builder().lease(LEASE).build();
    let mut source = orders(&broker).await;
    broker.publish("orders", Message::new("a1").key("a"));
    broker.publish("orders", Message::new("a2").key("a"));
    broker.publish("orders", Message::new("b1").key("b"));

    let received = source.receive(10).await.unwrap();
    assert_eq!(received.iter().map(|delivery| text(&delivery.received)).collect::<Vec<_>>(), ["a1", "b1"]);
    let start = Instant::now();
    for delivery in received {
        retry(&source, delivery.token, LEASE).await;
    }
    // The retry holds its key, the end of a lease too.
    let again = one(&mut source).await;
    assert_eq!((text(&again.received), start.elapsed()), ("a1", LEASE));
    acknowledge(&source, again.token);
    let mut texts = Vec::new();
    for delivery in source.receive(10).await.unwrap() {
        texts.push(text(&delivery.received).to_owned());
        acknowledge(&source, delivery.token);
    }
    assert_eq!(texts, ["b1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn reordering_leaves_the_order_within_a_key() {
    let broker = Memory::builder().reorder(8).duplicates(0.2).lose_acks(0.2).seed(3).build();
    let mut source = orders(&broker).await;
    for number in 0..400_u32 {
        broker.publish("orders", Message::new(number.to_string()).key((number % 16).to_string()));
        broker.publish("orders", Message::new((1000 + number).to_string()));
    }
    let numbers = drain(&mut source).await.iter().map(|received| text(received).parse().unwrap()).collect::<Vec<u32>>();

    let mut last = HashMap::new();
    for number in numbers.iter().filter(|number| **number < 1000) {
        let before = last.insert(number % 16, *number);
        assert!(before.is_none_or(|before| before <= *number), "{number} came after {before:?}");
    }
    let shaken = numbers.iter().filter(|number| **number >= 1000).is_sorted();
    assert!(!shaken, "messages without a key came in order");
}
