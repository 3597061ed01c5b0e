//! Consumers that come, fail and go.

use std::time::Duration;

use crate::adapter::{Adapter, declared};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, Trial, eventually};
use inboxed::RetryPolicy;

/// Nothing is lost over many restarts.
pub(crate) async fn resubscribe<A: Adapter>() {
    let trial = Trial::<A>::new("resubscribe").await;
    trial.publish_ids(0..5_000).await;
    for _ in 0..19 {
        let before = trial.effect_count().await;
        let running = trial.run(trial.consumer(&Script::plain()).prefetch(16));
        eventually("some more are handled", async || trial.effect_count().await >= (before + 200).min(5_000)).await;
        running.stop().await;
    }
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 5_000, Deliveries::Repeated).await;
}

/// Consumers that are opened and closed at once take nothing with them.
pub(crate) async fn concurrent_close<A: Adapter>() {
    let trial = Trial::<A>::new("concurrent_close").await;
    let script = Script::plain();
    let consumers = (0..10).map(|_| trial.run(trial.consumer(&script))).collect::<Vec<_>>();
    for consumer in &consumers {
        consumer.begin_stop();
    }
    for consumer in consumers {
        consumer.stop().await;
    }
    trial.publish_ids(0..50).await;
    let running = trial.run(trial.consumer(&script));
    trial.finish(running, 50, Deliveries::Once).await;
}

/// Consumers that always fail don't keep a clean one from anything.
pub(crate) async fn others_fail<A: Adapter>() {
    let trial = Trial::<A>::new("others_fail").await;
    let failing = Script::new(async |_| Err("always".into()));
    // Fewer attempts than after which any of the brokers gives a message up.
    let patient = RetryPolicy::default().attempts(400).backoff(Duration::from_millis(5), Duration::from_millis(20));
    let failing = (0..3).map(|_| trial.run(trial.consumer(&failing).retry(patient))).collect::<Vec<_>>();
    let clean = trial.run(trial.consumer(&Script::plain()).retry(patient));
    trial.publish_ids(0..50).await;
    trial.settled().await;
    for consumer in failing {
        consumer.stop().await;
    }
    trial.finish(clean, 50, Deliveries::Repeated).await;
    assert!(trial.dead_letters().await.is_empty());
}

/// A consumer that is cancelled hands what it hasn't settled to the next one.
pub(crate) async fn cancel<A: Adapter>() {
    let trial = Trial::<A>::with_lease("cancel", A::SHORT_LEASE).await;
    trial.publish_ids(0..20).await;
    let gate = Gate::closed();
    let stuck = gate.holds(|_| true);
    let cancelled = trial.run(trial.consumer(&stuck).concurrency(20));
    eventually("all were delivered", async || trial.log.distinct() == 20).await;
    cancelled.abort();
    gate.open();
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 20, Deliveries::Repeated).await;
}

/// Everything arrives once the broker's server is back; health is red meanwhile.
pub(crate) async fn reconnect<A: Adapter>() {
    let own = A::start_own(A::SHORT_LEASE * 2).await;
    let Some(own) = declared("reconnect", A::held_to().persistent, own) else { return };
    let trial = Trial::<A>::on("reconnect", own).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    for (from, to) in [(0, 3_333), (3_333, 5_000), (5_000, 10_000)] {
        for id in from..to {
            trial.publish(body(id)).await;
        }
        trial.broker.stop_server().await.unwrap();
        eventually("health is red", async || !running.health.report().is_healthy()).await;
        trial.broker.start_server().await.unwrap();
        eventually("health is green again", async || running.health.report().is_healthy()).await;
    }
    trial.finish(running, 10_000, Deliveries::Repeated).await;
}
