//! Connections that are cut or fall silent, and queues that go.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inboxed::{Report, RunError};
use serde_json::json;
use tokio::time::timeout;

use super::proxy::Proxy;
use super::server::{Answer, url_of};
use super::{Standard, shared_url};
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Trial, eventually};

/// Cut again and again under load, the consumer goes on.
pub(crate) async fn cut_connections_lose_and_double_nothing() {
    let proxy = Proxy::to(&shared_url()).await;
    let broker = Standard::through(&proxy, Standard::SHORT_LEASE);
    let trial = Trial::on("cut_connections_lose_and_double_nothing", broker).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    for round in 0..5 {
        // Before they are published: all may be handled by then.
        let before = trial.effect_count().await;
        trial.publish_ids(round * 100..(round + 1) * 100).await;
        eventually("some are handled", async || trial.effect_count().await > before).await;
        proxy.cut();
    }
    trial.finish(running, 500, Deliveries::Repeated).await;
}

/// A poll that is never answered is given up, and health is red until another is.
pub(crate) async fn silent_poll_is_given_up() {
    let proxy = Proxy::to(&shared_url()).await;
    let broker = Standard::through(&proxy, Standard::SHORT_LEASE);
    let trial = Trial::on("silent_poll_is_given_up", broker).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    proxy.silence();
    let red = timeout(Duration::from_secs(40), running.health.wait_for(|report| !report.is_healthy()));
    red.await.expect("red health while nothing is answered");
    proxy.cut();
    timeout(Duration::from_secs(40), running.health.wait_for(Report::is_healthy)).await.expect("green health");
    trial.publish(body(2)).await;
    trial.finish(running, 2, Deliveries::Repeated).await;
}

/// A key service that is too busy says so as a fault of the sender's; the consumer waits, and goes on.
pub(crate) async fn throttled_key_does_not_end_the_consumer() {
    let throttled = AtomicUsize::new(0);
    let proxy = Proxy::with(&shared_url(), move |server, request| {
        if request.action != "ReceiveMessage" || throttled.fetch_add(1, Ordering::AcqRel) >= 2 {
            return server.answer(request);
        }
        let body = json!({ "__type": "com.amazonaws.sqs#KmsThrottled", "message": "by the test" });
        let mut answer = Answer::of("400 Bad Request", &body);
        answer.head.push_str("\r\nx-amzn-query-error: KMS.ThrottlingException;Sender");
        answer
    })
    .await;
    let broker = Standard::through(&proxy, Standard::SHORT_LEASE);
    let trial = Trial::on("throttled_key_does_not_end_the_consumer", broker).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Once).await;
    assert!(proxy.requests("ReceiveMessage").len() > 2, "nothing was throttled");
}

/// A queue that is deleted isn't made again by a consumer, which ends and says so.
pub(crate) async fn source_recreated() {
    let trial = Trial::<Standard>::new("source_recreated").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    trial.broker.server.ask_soon("DeleteQueue", json!({ "QueueUrl": url_of(&trial.source) })).await;
    let Err(RunError::Source { name, error }) = running.ended().await else { panic!("it didn't end by its source") };
    assert_eq!(name, trial.source);
    assert!(error.to_string().contains("create_topology"), "{error}");

    trial.prepare("", &trial.source).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish_ids(1..=2).await;
    trial.finish(running, 2, Deliveries::Repeated).await;
}
