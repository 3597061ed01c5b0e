//! What the server is set up with: waits that are shorter than believed, and limits that strand messages.

use std::time::Duration;

use inboxed::broker::{Source as _, Transport as _, Wanted};
use inboxed::store::Reason;
use inboxed::{Check, Report, RetryPolicy, Severity};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{OnNats, Plain, SERVICE, nanos};
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, LONG_LEASE, eventually};

/// N01 (a): a backoff overrides the acknowledgement wait. The lease that counts is the server's, and it is kept.
pub(crate) async fn n01_backoff_that_overrides_the_wait_is_the_lease() {
    let trial = OnNats::new("n01_backoff_that_overrides_the_wait_is_the_lease").await;
    trial.publish(body(1)).await;
    // A server of 2.9 allows a backoff with a limit only.
    let backoff = [1, 5].map(|seconds| nanos(Duration::from_secs(seconds)));
    let wait = nanos(Duration::from_secs(30));
    let config = json!({ "ack_policy": "explicit", "ack_wait": wait, "backoff": backoff, "max_deliver": 100 });
    trial.broker.make_durable(&trial.source, config).await;
    let source = trial.broker.connect("").unwrap().open(&trial.source, &Wanted::new(SERVICE, 1)).await.unwrap();
    assert_eq!(source.capabilities().lease, Some(Duration::from_secs(1)));
    drop(source);

    let script = Script::new(async |_| {
        sleep(Duration::from_secs(3)).await;
        Ok(())
    });
    let consumer = || trial.consumer(&script).timeout(Duration::from_secs(30)).allow(Check::DeadLetterQueue);
    let found = consumer().check(&trial.broker.nats).await;
    let about = found.iter().map(|finding| (finding.check, finding.severity)).collect::<Vec<_>>();
    let warnings = [Check::Lease, Check::DeadLetterQueue].map(|check| (check, Severity::Warning));
    assert_eq!(about, warnings, "{found:?}");
    assert!(found[0].found.contains("its shortest step, 1s"), "{}", found[0]);
    let running = trial.run(consumer());
    trial.finish(running, 1, Deliveries::Once).await;
}

/// N01 (b): a hundred are fetched at once, and handled one by one for longer than their lease.
pub(crate) async fn n01_messages_that_wait_here_come_once() {
    let trial = OnNats::with_lease("n01_messages_that_wait_here_come_once", Duration::from_secs(2)).await;
    let script = Script::new(async |_| {
        sleep(Duration::from_millis(50)).await;
        Ok(())
    });
    trial.publish_ids(0..100).await;
    let running = trial.run(trial.consumer(&script).concurrency(1).prefetch(99));
    trial.finish(running, 100, Deliveries::Once).await;
    assert!(trial.log.deliveries().iter().any(|seen| seen.batch > 50), "nothing waited");
}

/// N05: no limit of the server's decides. Ours does, and leaves a dead letter.
pub(crate) async fn n05_message_that_always_fails_ends_as_a_dead_letter_by_our_limit() {
    let trial = OnNats::new("n05_message_that_always_fails").await;
    let policy = RetryPolicy::default().attempts(5).backoff(Duration::from_millis(10), Duration::from_millis(20));
    let running = trial.run(trial.consumer(&Script::new(async |_| Err("always".into()))).retry(policy));
    trial.publish(body(1)).await;
    trial.finish(running, 0, Deliveries::Repeated).await;
    let request = format!("CONSUMER.INFO.{}.{SERVICE}", trial.source);
    let durable = trial.broker.server.ask_soon(request, serde_json::Value::Null).await;
    assert_eq!(durable["config"]["max_deliver"], -1, "{durable}");
    let letters = trial.dead_letters().await;
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::AttemptsExhausted, &body(1)[..]));
    assert_eq!(trial.log.delivered(), 5);
}

/// N05: a foreign durable with a limit, accepted by name, works as far as the limit lets it.
pub(crate) async fn n05_limit_of_a_foreign_durable_can_be_accepted() {
    let trial = OnNats::new("n05_limit_of_a_foreign_durable_can_be_accepted").await;
    trial.publish(body(1)).await;
    trial.broker.make_durable(&trial.source, json!({ "ack_policy": "explicit", "max_deliver": 3 })).await;
    let consumer = trial.consumer(&Script::plain()).allow(Check::DeliveryLimit).allow(Check::DeadLetterQueue);
    let running = trial.run(consumer);
    trial.finish(running, 1, Deliveries::Once).await;
}

/// N06: delayed retries fill the cap, and a third message waits. Health says so within seconds, and all is handled later.
pub(crate) async fn stalled() {
    let trial = OnNats::on("stalled", Plain::with(LONG_LEASE, |nats| nats.max_ack_pending(2)).await).await;
    let script = Script::new(async |step| if step.id < 3 && step.attempt == 1 { Err("later".into()) } else { Ok(()) });
    let policy = RetryPolicy::default().backoff(Duration::from_secs(20), Duration::from_secs(20));
    let running = trial.run(trial.consumer(&script).concurrency(1).retry(policy));
    trial.publish_ids(1..=2).await;
    eventually("both wait for their retry", async || script.started(1) && script.started(2)).await;
    trial.publish(body(3)).await;
    let red = running.health.wait_for(|report| !report.is_healthy());
    let report = timeout(Duration::from_secs(9), red).await.expect("red health within seconds");
    let reason = &report.sources[&*trial.source];
    assert!(reason.contains("2 unacknowledged") && reason.contains("max_ack_pending"), "{reason}");
    assert!(!script.started(3));
    timeout(Duration::from_mins(1), running.health.wait_for(Report::is_healthy)).await.expect("green health");
    trial.finish(running, 3, Deliveries::Repeated).await;
}
