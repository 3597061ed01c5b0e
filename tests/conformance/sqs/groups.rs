//! The order within a group of a FIFO queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inboxed::Broker;
use inboxed::broker::{Outgoing as Sent, Publisher as _};
use inboxed::sqs::{Binding, Sqs};
use tokio::time::sleep;

use super::{Fifo, shared_url};
use crate::adapter::{Adapter as _, Outgoing};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, LONG_LEASE, Trial, eventually};

async fn publish(trial: &Trial<Fifo>, group: &str, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        trial.publish(Outgoing { body: body(id), ordering_key: Some(group.to_owned()), ..Outgoing::default() }).await;
    }
}

/// One fetch brings many of a group. They run one after the other, and none goes back to the queue for that.
pub(crate) async fn messages_of_a_group_run_one_after_the_other() {
    let trial = Trial::<Fifo>::new("messages_of_a_group_run_one_after_the_other").await;
    publish(&trial, "a", 0..30).await;
    let (running_now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let highest = Arc::clone(&most);
    let script = Script::new(move |_| {
        let (running_now, most) = (Arc::clone(&running_now), Arc::clone(&highest));
        async move {
            most.fetch_max(running_now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            sleep(Duration::from_millis(5)).await;
            running_now.fetch_sub(1, Ordering::AcqRel);
            Ok(())
        }
    });
    let running = trial.run(trial.consumer(&script).concurrency(10));
    trial.finish(running, 30, Deliveries::Once).await;
    assert_eq!(script.steps().iter().map(|step| step.id).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::Acquire), 1, "two of a group ran at once");
    assert!(trial.log.deliveries().iter().all(|seen| seen.received.delivery_count == 1), "some went back to the queue");
}

/// A message that fails holds back those behind it in its group, and no others.
pub(crate) async fn message_that_fails_holds_back_its_group_alone() {
    let trial = Trial::<Fifo>::new("message_that_fails_holds_back_its_group_alone").await;
    for id in 0..5 {
        publish(&trial, "a", [id]).await;
        publish(&trial, "b", [10 + id]).await;
    }
    let script =
        Script::new(async |step| if step.id == 0 && step.attempt < 3 { Err("not yet".into()) } else { Ok(()) });
    let running = trial.run(trial.consumer(&script));
    trial.finish(running, 10, Deliveries::Repeated).await;

    let mut order = BTreeMap::<bool, Vec<u64>>::new();
    for step in script.steps() {
        order.entry(step.id < 10).or_default().push(step.id);
    }
    assert_eq!(order[&true], [0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(order[&false], [10, 11, 12, 13, 14]);
    let steps = script.steps();
    let (last_of_b, third_try) =
        (steps.iter().position(|step| step.id == 14), steps.iter().position(|step| step.attempt == 3));
    assert!(last_of_b < third_try, "the other group waited");
}

/// What waits behind a long body keeps its lease with it.
pub(crate) async fn messages_behind_a_long_one_come_once() {
    let trial = Trial::<Fifo>::with_lease("messages_behind_a_long_one_come_once", Fifo::SHORT_LEASE).await;
    publish(&trial, "a", 0..4).await;
    let script = Script::new(|step| async move {
        sleep(if step.id == 0 { Fifo::SHORT_LEASE * 3 } else { Duration::ZERO }).await;
        Ok(())
    });
    let running = trial.run(trial.consumer(&script).timeout(Duration::from_secs(30)));
    trial.finish(running, 4, Deliveries::Once).await;
    assert!(trial.log.deliveries().iter().all(|seen| seen.received.delivery_count == 1), "some went back to the queue");
}

/// A consumer that ends gives back what waits behind a message that runs, and the next one goes on in order.
pub(crate) async fn group_is_given_back_whole_when_a_consumer_ends() {
    let trial = Trial::<Fifo>::new("group_is_given_back_whole_when_a_consumer_ends").await;
    publish(&trial, "a", 0..8).await;
    let gate = crate::trial::Gate::closed();
    let stuck = gate.holds(|step| step.id == 2);
    let running = trial.run(trial.consumer(&stuck).grace(Duration::from_millis(300)));
    eventually("the third runs", async || stuck.started(2)).await;
    running.stop().await;
    let rest = Script::plain();
    let running = trial.run(trial.consumer(&rest));
    trial.finish(running, 8, Deliveries::Repeated).await;
    assert_eq!(rest.steps().iter().map(|step| step.id).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 1), "an attempt was counted");
}

/// The queue drops a repetition by its id; equal messages without one are both delivered.
pub(crate) async fn repetition_is_known_by_its_id() {
    let trial = Trial::<Fifo>::with_lease("repetition_is_known_by_its_id", LONG_LEASE).await;
    let sqs = Sqs::new(&shared_url()).unwrap();
    let bound = sqs.source(&*trial.source, Binding::queue(format!("{}.fifo", trial.source)));
    let broker = Broker::from_transport(bound.clone()).with_publisher(bound.publisher());
    let publisher = broker.publisher().await.unwrap();
    let sent = |id: u64, repetition: Option<&str>| {
        let mut message = Sent::new(body(id));
        (message.group, message.id) = (Some("a".to_owned()), repetition.map(str::to_owned));
        message
    };
    for message in [sent(1, Some("1")), sent(1, Some("1")), sent(2, None), sent(2, None)] {
        publisher.publish(&trial.source, message).await.unwrap();
    }
    let refused = publisher.publish(&trial.source, Sent::new("x")).await.unwrap_err().to_string();
    assert!(refused.contains("Outgoing::group"), "{refused}");
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert_eq!(trial.log.deliveries_of(&body(1)).len(), 1, "the queue dropped none");
    assert_eq!(trial.log.deliveries_of(&body(2)).len(), 2, "the queue dropped what had no id");
}
