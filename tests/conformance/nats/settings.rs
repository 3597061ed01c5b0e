//! Streams and durables that are there already: what differs is said, with the cure.

use std::future::pending;
use std::time::Duration;

use inboxed::broker::{BrokerError, Transport as _, Wanted};
use inboxed::nats::{Binding, Nats};
use inboxed::{Check, Consumer, Finding, RunError, Severity};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{OnNats, Plain, nanos};
use crate::PATIENCE;
use crate::adapter::{Adapter as _, Outgoing};
use crate::handlers::{Script, apply, body};
use crate::trial::{Deliveries, LONG_LEASE, SERVICE, eventually, fresh_source, service};

/// What opening a source for ten messages at once is refused with.
async fn refusal(nats: &Nats, source: &str) -> String {
    match nats.open(source, &Wanted::new("shop", 10)).await {
        Err(refused @ BrokerError::Refused(_)) => refused.to_string(),
        Err(other) => panic!("not refused: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// A durable that can't be consumed through is refused: what differs, and the cure.
pub(crate) async fn topology_conflicting() {
    let broker = Plain::start(LONG_LEASE).await;
    let source = format!("conflict-{:08x}", fastrand::u32(..));
    broker.make_stream(json!({ "name": source, "subjects": [format!("{source}.>")] })).await;
    let wrong: [(Value, &[&str]); 5] = [
        (json!({ "filter_subject": format!("{source}.a") }), &["filters", "all of the stream", "Binding::subject"]),
        (json!({ "deliver_subject": "elsewhere" }), &["pushes to `elsewhere`", ".durable("]),
        (json!({ "ack_policy": "none", "deliver_subject": "elsewhere" }), &["pushes"]),
        (json!({ "ack_policy": "all" }), &["`all`", "`explicit`"]),
        (json!({ "headers_only": true }), &["headers only"]),
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

/// What is there and differs from what would be made is named with both values, and stays as it is.
pub(crate) async fn topology_made_otherwise() {
    let trial = OnNats::new("topology_made_otherwise").await;
    let (broker, source) = (&trial.broker, &trial.source);
    let consumer = trial.consumer(&Script::plain());
    let conflict = async |nats: &Nats| match consumer.create_topology(nats).await {
        Err(RunError::Source { name, error: BrokerError::Refused(error) }) if name == *source => error.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    let hour = nanos(Duration::from_hours(1));
    broker.make_stream(json!({ "name": source, "subjects": [source], "storage": "memory", "max_age": hour })).await;
    let refused = conflict(&broker.nats).await;
    for text in ["3600s, and 86400s wanted", "memory, and file wanted", "Binding::stream("] {
        assert!(refused.contains(text), "`{text}` isn't in: {refused}");
    }
    assert!(!refused.contains("subjects"), "{refused}");
    let info = broker.server.ask_soon(format!("STREAM.INFO.{source}"), Value::Null).await;
    assert_eq!(info["config"]["max_age"], hour, "it was changed");

    let bound = broker.nats.clone().source(source.as_str(), Binding::stream(source.as_str()));
    let wait = nanos(Duration::from_secs(45));
    let config = json!({ "ack_policy": "explicit", "ack_wait": wait, "max_deliver": 7, "headers_only": true });
    broker.make_durable(source, config).await;
    let refused = conflict(&bound).await;
    let texts = ["`shop`", "wait is 45s, and 60s", "max_deliver is 7, and -1", "headers only is true, and false"];
    for text in texts.iter().chain([&".durable("]) {
        assert!(refused.contains(text), "`{text}` isn't in: {refused}");
    }
    assert!(!refused.contains("max_ack_pending") && !refused.contains("filter"), "{refused}");
    let other = consumer.create_topology(&bound.clone().durable("other")).await.unwrap();
    assert_eq!(
        other.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("durable `other` of stream `{source}` for source `{source}`")]
    );
}

/// What an opening may not make is made on request.
pub(crate) async fn topology_of_existing_only() {
    let trial = OnNats::on("topology_of_existing_only", Plain::with(LONG_LEASE, Nats::existing_only).await).await;
    trial.broker.streams.lock().unwrap().insert(trial.source.clone());
    let refused = trial.run(trial.consumer(&Script::plain())).ended().await.unwrap_err().to_string();
    assert!(refused.contains("`create_topology`"), "{refused}");
    let made = trial.consumer(&Script::plain()).create_topology(&trial.broker.nats).await.unwrap();
    assert_eq!(made.len(), 2, "{made:?}");
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Once).await;
}

/// What a consumer of the trial's source is told of a durable as somebody else has made it.
async fn findings(trial: &OnNats, config: Value) -> Vec<Finding> {
    let durable = fresh_source("foreign");
    let mut whole = json!({ "durable_name": durable, "ack_policy": "explicit" });
    whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    trial.broker.make_durable(&trial.source, whole).await;
    let nats = trial.broker.nats.clone().durable(durable);
    let findings = trial.consumer(&Script::plain()).concurrency(10).check(&nats).await;
    assert_eq!(trial.consumer(&Script::plain()).concurrency(10).check(&nats).await, findings, "another order");

    // What is found is what a start says, and each error is accepted by its name.
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).cloned().collect::<Vec<_>>();
    let consumer = trial.consumer(&Script::plain()).concurrency(10);
    let accepting = errors.iter().fold(consumer, |consumer, error| consumer.allow(error.check));
    if !errors.is_empty() {
        let consumer = trial.consumer(&Script::plain()).concurrency(10);
        match timeout(PATIENCE, consumer.run_until(nats.clone(), pending())).await.expect("it ends by itself") {
            Err(RunError::Findings(refused)) => assert_eq!(refused, errors),
            other => panic!("not refused: {other:?}"),
        }
    }
    let (shutdown, before) = (accepting.shutdown(), trial.effect_count().await);
    let id = u64::try_from(before).unwrap();
    trial.publish(body(id)).await;
    let handled = async {
        eventually("it handles messages", async || trial.effect_count().await > before).await;
        shutdown.begin();
    };
    let (ended, ()) = tokio::join!(accepting.run_until(nats, pending()), handled);
    ended.unwrap();
    findings
}

/// A finding, and what stands in its text.
type Expected<'a> = (Check, Severity, &'a [&'a str]);

/// Each setting of a durable or stream that would lose, repeat or hold up messages is found: both figures, and the cure.
pub(crate) async fn settings_are_found_and_accepted_by_name() {
    use Check::{DeadLetterQueue, DeliveryLimit, Durability, InFlight, Lease, Retention, Settings};
    use Severity::{Error, Warning};
    let trial = OnNats::new("settings_are_found_and_accepted_by_name").await;
    let source = &trial.source;
    let day = nanos(Duration::from_hours(24));
    trial.broker.make_stream(json!({ "name": source, "subjects": [source], "max_age": day })).await;
    let milliseconds = |wait| nanos(Duration::from_millis(wait));
    let edit = |option: &str| format!("nats consumer edit {source} foreign-*** {option}");
    let expected: [(Value, &[Expected<'_>]); 8] = [
        (json!({}), &[]),
        (
            json!({ "max_deliver": 3 }),
            &[
                (DeliveryLimit, Error, &["after 3 deliveries", "has 10 attempts", "to 30 or more"]),
                (DeadLetterQueue, Error, &["after 3 deliveries", "no dead-letter queue", &edit("--max-deliver=-1")]),
            ],
        ),
        (
            json!({ "max_deliver": 29 }),
            &[
                (DeliveryLimit, Warning, &["after 29 deliveries", "has 10 attempts", "to 30 or more"]),
                (DeadLetterQueue, Error, &["after 29 deliveries"]),
            ],
        ),
        (json!({ "max_deliver": 30 }), &[(DeadLetterQueue, Error, &["after 30 deliveries"])]),
        (
            json!({ "max_ack_pending": 10 }),
            &[(InFlight, Error, &["at most 10", "takes 10", &edit("--max-pending=1000")])],
        ),
        (json!({ "ack_wait": milliseconds(20) }), &[(Lease, Error, &["20ms", "100ms", &edit("--wait=30s")])]),
        (json!({ "ack_wait": milliseconds(4_000) }), &[(Lease, Warning, &["4s", "5s", &edit("--wait=30s")])]),
        (
            json!({ "inactive_threshold": nanos(Duration::from_hours(1)) }),
            &[(Settings, Warning, &["3600s", "replays"])],
        ),
    ];
    for (config, expected) in expected {
        let found = findings(&trial, config.clone()).await;
        let kinds = found.iter().map(|finding| (finding.check, finding.severity)).collect::<Vec<_>>();
        assert_eq!(
            kinds,
            expected.iter().map(|(check, severity, _)| (*check, *severity)).collect::<Vec<_>>(),
            "{config}"
        );
        for (finding, (.., texts)) in found.iter().zip(expected) {
            assert_eq!(finding.subject, *source);
            let text = finding.to_string();
            for part in texts.iter().flat_map(|text| text.split("***")) {
                assert!(text.contains(part), "`{part}` isn't in: {text}");
            }
        }
    }

    trial.broker.delete_stream(source).await;
    let limits = json!({ "name": source, "subjects": [source], "storage": "memory", "max_msgs": 1_000 });
    trial.broker.make_stream(limits).await;
    let found = findings(&trial, json!({})).await;
    let kinds = found.iter().map(|finding| (finding.check, finding.severity)).collect::<Vec<_>>();
    assert_eq!(kinds, [(Retention, Warning), (Durability, Warning), (Retention, Warning)], "{found:?}");
    for (finding, text) in found.iter().zip(["without end", "in memory", "beyond 1000 messages"]) {
        assert!(finding.found.contains(text), "`{text}` isn't in: {finding}");
    }
}

/// The settings are read at each opening: what has become an error meanwhile ends the consumer.
pub(crate) async fn settings_changed_while_it_runs_end_the_consumer() {
    let trial = OnNats::new("settings_changed_while_it_runs_end_the_consumer").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    let months = nanos(Duration::from_hours(60 * 24));
    let config = json!({ "name": trial.source, "subjects": [trial.source], "max_age": months });
    let changed = trial.broker.server.ask_soon(format!("STREAM.UPDATE.{}", trial.source), config).await;
    assert!(changed["error"].is_null(), "{changed}");
    trial.broker.server.ask_soon(format!("CONSUMER.DELETE.{}.{SERVICE}", trial.source), Value::Null).await;
    let Err(RunError::Findings(refused)) = running.ended().await else { panic!("it goes on") };
    assert_eq!(refused.iter().map(|finding| finding.check).collect::<Vec<_>>(), [Check::Retention]);
    trial.count(1, Deliveries::Once).await;
}

/// N06: a cap that the consumer's concurrency reaches is refused at the start.
pub(crate) async fn n06_cap_at_the_concurrency_is_refused() {
    let trial = OnNats::on(
        "n06_cap_at_the_concurrency_is_refused",
        Plain::with(LONG_LEASE, |nats| nats.max_ack_pending(16)).await,
    )
    .await;
    trial.broker.streams.lock().unwrap().insert(trial.source.clone());
    let ended = trial.run(trial.consumer(&Script::plain()).concurrency(16)).ended().await;
    let refused = ended.unwrap_err().to_string();
    for text in ["at most 16", "takes 16", ".allow(Check::InFlight)"] {
        assert!(refused.contains(text), "`{text}` isn't in: {refused}");
    }
}

/// N01 (c): a wait of 20 ms, as it comes of a wrong unit, is refused for what it is.
pub(crate) async fn n01_wait_in_the_wrong_unit_is_refused() {
    let trial =
        OnNats::on("n01_wait_in_the_wrong_unit_is_refused", Plain::with(Duration::from_millis(20), |nats| nats).await)
            .await;
    trial.broker.streams.lock().unwrap().insert(trial.source.clone());
    let refused = trial.run(trial.consumer(&Script::plain())).ended().await.unwrap_err().to_string();
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
    assert!(refusal(&only, &source).await.contains("`create_topology`"));
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
    trial.count(20, Deliveries::Once).await;
}
