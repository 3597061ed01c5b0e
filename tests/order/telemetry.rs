//! What is counted: each duplicate by its cause, and every other end of a message once.

use inboxed::memory::Memory;
use inboxed::{Outcome, permanent};

use super::common::counters::Counters;
use super::support::{Script, Shop, deliver, deliver_to_the_end, order, record, run_to_the_end};

#[tokio::test]
async fn duplicates_are_counted_by_cause() {
    let counters = Counters::default();
    let _counting = metrics::set_default_local_recorder(&counters);
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    let broker = Memory::builder().lose_ack_if(|delivery| delivery.delivery_count < 3).build();
    broker.publish("orders", order(1));
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    let broker = Memory::new();
    broker.publish("orders", order(1));
    broker.publish("orders", r#"{"id":1,"price":"another"}"#);
    run_to_the_end(&consumer, &broker, &["orders"]).await;

    assert_eq!(counters.sum("inboxed.handled", ("consumer", "shop/record")), 1);
    let duplicate = |cause| counters.sum("inboxed.duplicate", ("cause", cause));
    assert_eq!(duplicate("redelivery"), 2, "two acknowledgements were lost");
    assert_eq!(duplicate("producer_retry"), 1, "a new message with the same bytes");
    assert_eq!(duplicate("key_conflict"), 1, "a new message with other bytes");
}

#[tokio::test]
async fn failures_reruns_and_dead_letters_are_counted() {
    let counters = Counters::default();
    let _counting = metrics::set_default_local_recorder(&counters);
    let shop = Shop::open().await;
    let script = Script::new(|run| match run {
        1 | 2 => Err("not yet".into()),
        3 => Err(sqlx::Error::PoolTimedOut.into()),
        4 => Ok(()),
        _ => Err(permanent("never")),
    });
    let consumer = shop.scripted(&script);
    assert_eq!(deliver_to_the_end(&consumer, 1).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 2).await, Outcome::DeadLettered);
    for (metric, count) in [("inboxed.handled", 1), ("inboxed.retried", 2), ("inboxed.given_back", 1)] {
        assert_eq!(counters.sum(metric, ("consumer", "shop/scripted")), count, "{metric}");
    }
    assert_eq!(counters.sum("inboxed.dead_lettered", ("reason", "permanent")), 1);
}
