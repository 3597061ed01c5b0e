//! Streams and durables that are there already: what differs is said, with the cure.

use std::time::Duration;

use inboxed::Consumer;
use inboxed::broker::{BrokerError, Transport as _, Wanted};
use inboxed::nats::{Binding, Nats};
use serde_json::{Value, json};

use super::{OnNats, Plain};
use crate::adapter::{Adapter as _, Outgoing};
use crate::handlers::{Script, apply, body};
use crate::trial::{LONG_LEASE, eventually, service};

/// What opening a source for ten messages at once is refused with.
async fn refusal(nats: &Nats, source: &str) -> String {
    match nats.open(source, &Wanted::new("shop", 10)).await {
        Err(refused @ BrokerError::Refused(_)) => refused.to_string(),
        Err(other) => panic!("not refused: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// A durable that would lose messages, or stand still, is refused: both figures, and the cure.
pub(crate) async fn topology_conflicting() {
    let broker = Plain::start(LONG_LEASE).await;
    let source = format!("conflict-{:08x}", fastrand::u32(..));
    broker.make_stream(json!({ "name": source, "subjects": [format!("{source}.>")] })).await;
    let milliseconds = u64::try_from(Duration::from_millis(20).as_nanos()).unwrap();
    let wrong: [(Value, &[&str]); 8] = [
        (json!({ "filter_subject": format!("{source}.a") }), &["filters", "all of the stream", "Binding::subject"]),
        (json!({ "deliver_subject": "elsewhere" }), &["pushes to `elsewhere`", ".durable("]),
        (json!({ "ack_policy": "none", "deliver_subject": "elsewhere" }), &["pushes"]),
        (json!({ "ack_policy": "all" }), &["`all`", "`explicit`"]),
        (json!({ "headers_only": true }), &["headers only"]),
        (json!({ "max_deliver": 3 }), &["3 deliveries", "--max-deliver=-1", ".allow_max_deliver()"]),
        (json!({ "max_ack_pending": 10 }), &["at most 10", "takes 10", "--max-pending="]),
        (json!({ "ack_wait": milliseconds }), &["20ms", "100ms", "--wait=30s"]),
    ];
    for (number, (config, texts)) in wrong.into_iter().enumerate() {
        let durable = format!("foreign-{number}");
        let mut whole = json!({ "durable_name": durable, "ack_policy": "explicit" });
        whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        broker.make_durable(&source, whole).await;
        let refused = refusal(&broker.nats.clone().durable(&durable), &source).await;
        for text in texts.iter().chain([&&*durable, &&*source]) {
            assert!(refused.contains(text), "`{text}` isn't in: {refused}");
        }
    }
}

/// N06: a cap that the consumer's concurrency reaches is refused at the start.
pub(crate) async fn n06_cap_at_the_concurrency_is_refused() {
    let trial = OnNats::on(
        "n06_cap_at_the_concurrency_is_refused",
        Plain::with(LONG_LEASE, |nats| nats.max_ack_pending(16)).await,
    )
    .await;
    let ended = trial.run(trial.consumer(&Script::plain()).concurrency(16)).ended().await;
    let refused = ended.unwrap_err().to_string();
    assert!(refused.contains("at most 16") && refused.contains("takes 16"), "{refused}");
    trial.broker.streams.lock().unwrap().insert(trial.source.clone());
}

/// N01 (c): a wait of 20 ms, as it comes of a wrong unit, is refused for what it is.
pub(crate) async fn n01_wait_in_the_wrong_unit_is_refused() {
    let broker = Plain::with(Duration::from_millis(20), |nats| nats).await;
    let source = format!("n01-unit-{:08x}", fastrand::u32(..));
    broker.streams.lock().unwrap().insert(source.clone());
    let refused = refusal(&broker.nats, &source).await;
    assert!(refused.contains("20ms") && refused.contains("--wait=30s"), "{refused}");
}

/// What isn't there isn't made, if that is forbidden or can't be meant.
pub(crate) async fn what_is_missing_is_named() {
    let broker = Plain::start(LONG_LEASE).await;
    let source = format!("missing-{:08x}", fastrand::u32(..));
    let only = broker.nats.clone().existing_only();
    assert!(refusal(&only, &source).await.contains(".existing_only()"));
    assert!(refusal(&broker.nats, &format!("{source}.>")).await.contains("make one first"));
    let bound = broker.nats.clone().source(source.as_str(), Binding::stream("nowhere"));
    assert!(refusal(&bound, &source).await.contains("no stream `nowhere`"));
    broker.make_stream(json!({ "name": source, "subjects": [format!("{source}.>")] })).await;
    assert!(refusal(&only, &source).await.contains("make it first"));
    let other = format!("{source}-other");
    broker.make_stream(json!({ "name": other, "subjects": [source] })).await;
    let refused = refusal(&broker.nats, &source).await;
    assert!(refused.contains(&other) && refused.contains("Binding::stream"), "{refused}");
}

/// Two sources that are subjects of one stream get their own messages each, and nothing of the rest.
pub(crate) async fn two_subjects_of_one_stream_are_two_sources() {
    let trial = OnNats::new("two_subjects_of_one_stream_are_two_sources").await;
    let root = &trial.source;
    let stream = trial.broker.make_stream(json!({ "name": root, "subjects": [format!("{root}.*")] })).await;
    let sources = ["a", "b"].map(|part| format!("{root}.{part}"));
    let consumer: Consumer<_, _> = service("shop", trial.inbox.clone(), &Script::plain());
    let consumer = sources.iter().fold(consumer, |consumer, source| consumer.handle(source.as_str(), apply));
    let running = trial.run(consumer);
    for id in 0..30 {
        let part = ["a", "b", "c"][usize::try_from(id % 3).unwrap()];
        trial.broker.publish(&format!("{root}.{part}"), Outgoing::from(body(id))).await.unwrap();
    }
    eventually("both have their effects", async || trial.effect_count().await == 20).await;
    running.stop().await;
    for (_, id, source, _) in trial.effects().await {
        assert_eq!(source, sources[usize::try_from(id % 3).unwrap()]);
    }
    trial.broker.delete_stream(&stream).await;
    trial.count(20, crate::trial::Deliveries::Once).await;
}
