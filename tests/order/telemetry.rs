//! What is counted: each duplicate by its cause, and every other end of a message once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use inboxed::memory::Memory;
use inboxed::{Outcome, permanent};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::support::{Script, Shop, deliver, deliver_to_the_end, order, record, run_to_the_end};

/// The counters of this process, by `name{label=value,…}`.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect::<Vec<_>>();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

static COUNTERS: LazyLock<Counters> = LazyLock::new(|| {
    let counters = Counters::default();
    metrics::set_global_recorder(counters.clone()).expect("no other recorder");
    counters
});

/// A counter's value. Each test has a service of its own, so that tests don't count each other's messages.
fn counted(name: &str) -> u64 {
    COUNTERS.0.lock().unwrap().get(name).map_or(0, |counter| counter.load(Ordering::SeqCst))
}

#[tokio::test]
async fn duplicates_are_counted_by_cause() {
    LazyLock::force(&COUNTERS);
    let shop = Shop::open().await;
    let consumer = shop.service("causes").handle("orders", record);
    let broker = Memory::builder().lose_ack_if(|delivery| delivery.delivery_count < 3).build();
    broker.publish("orders", order(1));
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    let broker = Memory::new();
    broker.publish("orders", order(1));
    broker.publish("orders", r#"{"id":1,"price":"another"}"#);
    run_to_the_end(&consumer, &broker, &["orders"]).await;

    assert_eq!(counted("inboxed.handled{consumer=causes/record}"), 1);
    let duplicate = |cause| counted(&format!("inboxed.duplicate{{consumer=causes/record,cause={cause}}}"));
    assert_eq!(duplicate("redelivery"), 2, "two acknowledgements were lost");
    assert_eq!(duplicate("producer_retry"), 1, "a new message with the same bytes");
    assert_eq!(duplicate("key_conflict"), 1, "a new message with other bytes");
}

#[tokio::test]
async fn failures_reruns_and_dead_letters_are_counted() {
    LazyLock::force(&COUNTERS);
    let shop = Shop::open().await;
    let script = Script::new(|run| match run {
        1 | 2 => Err("not yet".into()),
        3 => Err(sqlx::Error::PoolTimedOut.into()),
        4 => Ok(()),
        _ => Err(permanent("never")),
    });
    let consumer = shop.service("ends").state(script).handle("orders", super::support::scripted);
    assert_eq!(deliver_to_the_end(&consumer, 1).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 2).await, Outcome::DeadLettered);
    for (metric, count) in [("handled", 1), ("retried", 2), ("given_back", 1)] {
        assert_eq!(counted(&format!("inboxed.{metric}{{consumer=ends/scripted}}")), count, "{metric}");
    }
    assert_eq!(counted("inboxed.dead_lettered{consumer=ends/scripted,reason=permanent}"), 1);
}
