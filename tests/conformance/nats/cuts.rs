//! Connections that are cut or fall silent, acknowledgements that are lost, a server that is killed.

use std::time::Duration;

use inboxed::Report;
use inboxed::broker::Settled;
use tokio::time::{sleep, timeout};

use super::proxy::Proxy;
use super::{OnNats, Plain};
use crate::adapter::Adapter;
use crate::handlers::{Script, body};
use crate::services::shared;
use crate::trial::{Deliveries, Gate, Running, eventually};
use crate::watch::Answer;

const LEASE: Duration = Plain::SHORT_LEASE;

async fn proxy() -> Proxy {
    Proxy::to(&shared("INBOXED_NATS_URL")).await
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
    let proxy = proxy().await;
    let trial = OnNats::on("stale_channel", Plain::through(&proxy, LEASE).await).await;
    let gate = Gate::closed();
    let script = gate.holds(|_| true);
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    eventually("it runs", async || script.started(1)).await;
    tokio::join!(red_and_green(&running), async { proxy.cut() });
    gate.open();
    eventually("its acknowledgement is lost", async || trial.log.answered(Answer::Ack, Settled::Lost) == 1).await;
    assert_eq!(proxy.acknowledgements(), 0, "it was sent on another connection");
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!((script.steps().len(), proxy.acknowledgements()), (1, 1), "runs, and acknowledgements of the duplicate");
}

/// N08 (d): cut again and again under load, the consumer goes on.
pub(crate) async fn n08_cut_connections_lose_and_double_nothing() {
    let proxy = proxy().await;
    let trial = OnNats::on("n08_cut_connections_lose_and_double_nothing", Plain::through(&proxy, LEASE).await).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    for round in 0..5 {
        // Before they are published: all may be handled by then.
        let before = trial.effect_count().await;
        trial.publish_ids(round * 200..(round + 1) * 200).await;
        eventually("some are handled", async || trial.effect_count().await > before).await;
        proxy.cut();
    }
    trial.finish(running, 1_000, Deliveries::Repeated).await;
}

/// A connection over which nothing comes any more is noticed, and replaced.
pub(crate) async fn n08_silent_connection_is_replaced() {
    let proxy = proxy().await;
    let trial = OnNats::on("n08_silent_connection_is_replaced", Plain::through(&proxy, LEASE).await).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    tokio::join!(red_and_green(&running), async { proxy.silence() });
    trial.publish(body(2)).await;
    trial.finish(running, 2, Deliveries::Once).await;
}

/// N02: the acknowledgement is lost on its way; the message comes again and is a duplicate.
pub(crate) async fn n02_lost_acknowledgement_has_one_effect() {
    let proxy = proxy().await;
    let trial = OnNats::on("n02_lost_acknowledgement_has_one_effect", Plain::through(&proxy, LEASE).await).await;
    proxy.lose_acknowledgements(1);
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    eventually("nobody confirms it", async || trial.log.answered(Answer::Ack, Settled::Lost) == 1).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!((trial.log.delivered(), script.steps().len()), (2, 1), "deliveries and runs");
    assert_eq!(trial.log.answered(Answer::Ack, Settled::Confirmed), 1);
}

/// N02: the server is killed right after acknowledgements.
pub(crate) async fn n02_server_killed_after_acknowledgements() {
    let trial = OnNats::on("n02_server_killed_after_acknowledgements", Plain::start_own(LEASE).await.unwrap()).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish_ids(0..300).await;
    eventually("some are acknowledged", async || trial.log.acknowledged() > 50).await;
    let own = trial.broker.own.as_ref().unwrap();
    tokio::join!(own.kill(), async { running.health.wait_for(|report| !report.is_healthy()).await });
    own.start_again().await;
    trial.finish(running, 300, Deliveries::Repeated).await;
}

/// N02: a worker that lost its turn, and whose transaction was rolled back, says nothing about the other's delivery.
pub(crate) async fn n02_worker_that_lost_its_turn_says_nothing() {
    let proxy = proxy().await;
    let trial = OnNats::on("n02_worker_that_lost_its_turn_says_nothing", Plain::through(&proxy, LEASE).await).await;
    let script = Script::new(|step| async move {
        if step.attempt == 1 {
            sleep(LEASE.mul_f64(1.5)).await;
            return Err("rolled back".into());
        }
        Ok(())
    });
    let consumer = trial.consumer(&script).timeout(Duration::from_secs(30)).keep_leases(false);
    let running = trial.run(consumer);
    trial.publish(body(1)).await;
    eventually("it loses its turn", async || trial.log.answered(Answer::Retry, Settled::Lost) >= 1).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!(proxy.acknowledgements(), 1, "acknowledgements by who committed");
}
