//! N08: durables and streams that are deleted, and made again, while a consumer runs.

use inboxed::RunError;
use inboxed::broker::Settled;
use serde_json::{Value, json};

use super::{OnNats, Plain, SERVICE};
use crate::adapter::Adapter;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, LONG_LEASE, eventually};
use crate::watch::Answer;

/// N08 (a): the durable is made again, and hands out everything: all duplicates.
pub(crate) async fn source_recreated() {
    let trial = OnNats::new("source_recreated").await;
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script));
    trial.publish_ids(0..10).await;
    trial.settled().await;
    let deleted =
        trial.broker.server.ask_soon(format!("CONSUMER.DELETE.{}.{SERVICE}", trial.source), Value::Null).await;
    assert_eq!(deleted["success"], true, "{deleted}");
    eventually("the durable is there again", async || trial.log.opened() == 2).await;
    trial.publish(body(10)).await;
    trial.finish(running, 11, Deliveries::Repeated).await;
    assert_eq!((trial.log.delivered(), script.steps().len()), (21, 11), "deliveries and runs");
}

/// A stream that the consumer made is made again.
pub(crate) async fn n08_own_stream_is_made_again() {
    let trial = OnNats::new("n08_own_stream_is_made_again").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("the stream is made", async || trial.log.opened() == 1).await;
    trial.publish_ids(0..3).await;
    trial.settled().await;
    trial.broker.delete_stream(&trial.source).await;
    eventually("the stream is there again", async || trial.log.opened() == 2).await;
    trial.publish(body(3)).await;
    trial.finish(running, 4, Deliveries::Once).await;
}

/// A stream that somebody else made isn't: the consumer ends and says so.
pub(crate) async fn n08_foreign_stream_that_is_gone_ends_the_consumer() {
    let trial = OnNats::new("n08_foreign_stream_that_is_gone_ends_the_consumer").await;
    let subjects = format!("{}.>", trial.source);
    let stream = trial.broker.make_stream(json!({ "name": trial.source, "subjects": [subjects] })).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("it listens", async || trial.log.opened() == 1).await;
    trial.broker.delete_stream(&stream).await;
    let Err(RunError::Source { name, error }) = running.ended().await else { panic!("it didn't end by its source") };
    assert_eq!(name, trial.source);
    assert!(error.to_string().contains("make it again"), "{error}");
}

/// N08 (b): the server is restarted, and its memory with the stream is gone.
pub(crate) async fn n08_memory_stream_lost_in_a_restart_ends_the_consumer() {
    let trial = OnNats::on(
        "n08_memory_stream_lost_in_a_restart_ends_the_consumer",
        Plain::start_own(LONG_LEASE).await.unwrap(),
    )
    .await;
    let config = json!({ "name": trial.source, "subjects": [trial.source], "storage": "memory" });
    trial.broker.make_stream(config).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish_ids(0..3).await;
    trial.settled().await;
    trial.broker.stop_server().await.unwrap();
    trial.broker.start_server().await.unwrap();
    let ended = running.ended().await;
    assert!(matches!(&ended, Err(RunError::Source { .. })), "{ended:?}");
    assert_eq!(trial.effect_count().await, 3);
}

/// The stream is made anew while a body runs: its acknowledgement, which names a number, doesn't acknowledge the new stream's
/// message of that number.
pub(crate) async fn acknowledgement_of_a_stream_that_is_gone_takes_no_message_of_the_next() {
    let trial = OnNats::new("acknowledgement_of_a_stream_that_is_gone").await;
    let gate = Gate::closed();
    let script = gate.holds(|step| step.id == 1);
    let running = trial.run(trial.consumer(&script).concurrency(4));
    eventually("the stream is made", async || trial.log.opened() == 1).await;
    trial.publish(body(1)).await;
    eventually("it runs", async || script.started(1)).await;
    trial.broker.delete_stream(&trial.source).await;
    eventually("the stream is there again", async || trial.log.opened() == 2).await;
    // The first number again, and it waits for SQLite's one writer, which the held body is.
    trial.publish(body(2)).await;
    eventually("it is here", async || trial.log.distinct() == 2).await;
    gate.open();
    eventually("the old one is lost", async || trial.log.answered(Answer::Ack, Settled::Lost) == 1).await;
    trial.settled().await;
    running.stop().await;
    trial.count(2, Deliveries::Once).await;
    assert_eq!(trial.log.answered(Answer::Ack, Settled::Confirmed), 1);
}
