//! Connections that are cut or fall silent, and channels that the server closes alone.

use std::time::Duration;

use inboxed::broker::Settled;
use inboxed::{Check, Report};
use tokio::time::{sleep, timeout};

use super::proxy::Proxy;
use super::{OnRabbit, Plain, SHORT};
use crate::handlers::{Script, body};
use crate::services::shared;
use crate::trial::{Deliveries, Gate, LONG_LEASE, Running, eventually};
use crate::watch::Answer;

async fn behind_proxy(row: &'static str) -> (Proxy, OnRabbit) {
    let proxy = Proxy::to(&shared("INBOXED_RABBITMQ_URL")).await;
    let trial = OnRabbit::on(row, Plain::through(&proxy, LONG_LEASE).await).await;
    (proxy, trial)
}

/// Waits until health was red, and is green again.
async fn red_and_green(running: &Running) {
    let passed = async {
        running.health.wait_for(|report| !report.is_healthy()).await;
        running.health.wait_for(Report::is_healthy).await;
    };
    timeout(Duration::from_mins(1), passed).await.expect("red health, then green");
}

/// The connection is cut while a body runs: its acknowledgement isn't sent on the next one, and the effect is single.
pub(crate) async fn stale_channel() {
    let (proxy, trial) = behind_proxy("stale_channel").await;
    let gate = Gate::closed();
    let script = gate.holds(|_| true);
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    eventually("it runs", async || script.started(1)).await;
    tokio::join!(red_and_green(&running), async { proxy.cut() });
    gate.open();
    eventually("its acknowledgement is lost", async || trial.log.answered(Answer::Ack, Settled::Lost) == 1).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!((script.steps().len(), proxy.acknowledgements()), (1, 1), "runs, and acknowledgements of the duplicate");
}

/// N08 (d): cut again and again under load, the consumer goes on.
pub(crate) async fn n08_cut_connections_lose_and_double_nothing() {
    let (proxy, trial) = behind_proxy("n08_cut_connections_lose_and_double_nothing").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    let cutting = async {
        for round in 1..=5 {
            eventually("some are handled", async || trial.effect_count().await >= round * 150).await;
            proxy.cut();
        }
    };
    tokio::join!(trial.publish_ids(0..1_000), cutting);
    trial.finish(running, 1_000, Deliveries::Repeated).await;
}

/// A connection over which nothing comes any more is noticed, and replaced; the message that is lost on it comes again.
pub(crate) async fn n08_silent_connection_is_replaced() {
    let (proxy, trial) = behind_proxy("n08_silent_connection_is_replaced").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    tokio::join!(red_and_green(&running), async { proxy.silence() });
    trial.publish(body(2)).await;
    trial.finish(running, 2, Deliveries::Once).await;
}

/// An acknowledgement is lost on its way, and then the connection: the message comes again and is a duplicate.
pub(crate) async fn lost_acknowledgement_has_one_effect() {
    let (proxy, trial) = behind_proxy("lost_acknowledgement_has_one_effect").await;
    proxy.lose_acknowledgements(1);
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    eventually("it has its effect", async || trial.log.acknowledged() == 1).await;
    tokio::join!(red_and_green(&running), async { proxy.cut() });
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!((trial.log.delivered(), script.steps().len()), (2, 1), "deliveries and runs");
}

/// The server closes the channel alone, for an acknowledgement that is late: the consumer comes back, health red meanwhile.
pub(crate) async fn channel_only_closed() {
    let trial = OnRabbit::with_lease("channel_only_closed", SHORT).await;
    let gate = Gate::closed();
    let script = gate.holds(|step| step.id == 1);
    let running = trial.run(trial.consumer(&script).timeout(Duration::from_secs(30)).allow(Check::Lease));
    trial.publish(body(1)).await;
    red_and_green(&running).await;
    gate.open();
    trial.publish(body(2)).await;
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert_eq!(trial.log.answered(Answer::Ack, Settled::Lost), 1, "the late acknowledgement");
}

/// R01: five are out, and the first takes longer than the server waits. Its commit stands, the rest resumes on a new channel, what
/// had committed is a duplicate, and the consumer goes on.
pub(crate) async fn r01_late_acknowledgement_costs_a_channel_and_no_effect() {
    let trial = OnRabbit::with_lease("r01_late_acknowledgement", SHORT).await;
    let script = Script::new(|step| async move {
        if step.id == 1 && step.attempt == 1 {
            sleep(SHORT.mul_f64(1.6)).await;
        }
        Ok(())
    });
    let consumer = trial.consumer(&script).concurrency(5).timeout(Duration::from_secs(30)).allow(Check::Lease);
    trial.publish_ids(1..=5).await;
    let running = trial.run(consumer);
    trial.settled().await;
    trial.publish(body(6)).await;
    trial.finish(running, 6, Deliveries::Repeated).await;
    assert!(trial.log.opened() >= 2, "the channel was never closed");
    assert_eq!(script.steps().iter().filter(|step| step.id == 1).count(), 1, "what had committed ran again");
    assert!(trial.dead_letters().await.is_empty());
}

/// A body that would take three times as long as the server waits is ended by its deadline before, comes again, and never has an
/// effect twice: here it is quick at its second attempt.
pub(crate) async fn body_of_three_leases_is_ended_by_its_deadline() {
    let trial = OnRabbit::with_lease("body_of_three_leases_is_ended_by_its_deadline", SHORT).await;
    let script = Script::new(|step| async move {
        if step.attempt == 1 {
            sleep(SHORT * 3).await;
        }
        Ok(())
    });
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!(script.steps().len(), 2, "runs");
    assert!(script.steps().iter().all(|step| !step.lease_lost));
    assert!(trial.dead_letters().await.is_empty());
}
