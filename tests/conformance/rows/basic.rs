//! What any broker must do with messages that are handled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{Adapter, Outgoing};
use crate::handlers::{Script, apply, body};
use crate::trial::{Deliveries, SERVICE, Trial, eventually, service};

/// Every message arrives, body and headers byte for byte; the consumer ends when it is told to.
pub(crate) async fn publish_subscribe<A: Adapter>() {
    let trial = Trial::<A>::new("publish_subscribe").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    let headers = |id: u64| vec![("Type", b"Applied".to_vec()), ("trace-id", format!("tr\u{e4}ce {id}").into_bytes())];
    for id in 0..100 {
        trial.publish(Outgoing { body: body(id), headers: headers(id), ..Outgoing::default() }).await;
    }
    trial.settled().await;
    let stopped_after = running.stop().await;

    assert!(stopped_after < Duration::from_secs(5), "the consumer took {stopped_after:?} to end");
    for id in 0..100 {
        let seen = &trial.log.deliveries_of(&body(id))[0].received;
        // Not every client keeps the order between different names.
        let mut arrived = seen.headers.iter().map(|(name, value)| (name, value.to_vec())).collect::<Vec<_>>();
        arrived.sort_unstable();
        assert_eq!(arrived, headers(id));
        assert!(seen.sent_at.is_some_and(|sent_at| sent_at.elapsed().unwrap_or_default() < Duration::from_mins(2)));
    }
    trial.count(100, Deliveries::Once).await;
}

/// Many publishers and many workers: the union is the published set.
pub(crate) async fn concurrent<A: Adapter>() {
    let trial = Trial::<A>::new("concurrent").await;
    let running = trial.run(trial.consumer(&Script::plain()).concurrency(50));
    publish_from_tasks(&trial, 50, 100).await;
    trial.finish(running, 5_000, Deliveries::Once).await;
}

/// Everything that was accepted from publishers that are gone arrives.
pub(crate) async fn publisher_close<A: Adapter>() {
    let trial = Trial::<A>::new("publisher_close").await;
    publish_from_tasks(&trial, 20, 500).await;
    let running = trial.run(trial.consumer(&Script::plain()).concurrency(32));
    trial.finish(running, 10_000, Deliveries::Once).await;
}

async fn publish_from_tasks<A: Adapter>(trial: &Trial<A>, publishers: u64, each: u64) {
    let publishing = (0..publishers).map(|publisher| {
        let (broker, source) = (Arc::clone(&trial.broker), trial.source.clone());
        tokio::spawn(async move {
            for number in 0..each {
                broker.publish(&source, body(publisher * each + number).into()).await.unwrap();
            }
        })
    });
    for publisher in publishing.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
}

/// Sources don't hear of each other's messages.
pub(crate) async fn many_topics<A: Adapter>() {
    let trial = Trial::<A>::new("many_topics").await;
    let sources = (0..20).map(|number| format!("{}-{number}", trial.source)).collect::<Vec<_>>();
    for source in &sources {
        trial.prepare("", source).await;
    }
    let script = Script::plain();
    let consumer = service(SERVICE, trial.inbox.clone(), &script);
    let consumer = sources.iter().fold(consumer, |consumer, source| consumer.handle(source.as_str(), apply));
    let running = trial.run(consumer);
    for id in 0..2_000 {
        let source = &sources[usize::try_from(id).unwrap() % sources.len()];
        trial.broker.publish(source, body(id).into()).await.unwrap();
    }
    for source in &sources {
        eventually("the source is settled", async || trial.broker.backlog("", source).await == 0).await;
    }
    running.stop().await;

    for (_, id, source, _) in trial.effects().await {
        assert_eq!(source, sources[usize::try_from(id).unwrap() % sources.len()]);
    }
    trial.count(2_000, Deliveries::Once).await;
}

/// A failed message comes again, and is known by its attempts.
pub(crate) async fn retry_comes_back<A: Adapter>() {
    let trial = Trial::<A>::new("retry_comes_back").await;
    let script = Script::new(async |step| if step.attempt < 3 { Err("not yet".into()) } else { Ok(()) });
    let running = trial.run(trial.consumer(&script));
    trial.publish_ids(0..100).await;
    trial.finish(running, 100, Deliveries::Repeated).await;

    let mut attempts = BTreeMap::<u64, Vec<u32>>::new();
    for step in script.steps() {
        attempts.entry(step.id).or_default().push(step.attempt);
    }
    assert_eq!(attempts.into_values().collect::<BTreeSet<_>>(), BTreeSet::from([vec![1, 2, 3]]));
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 3));
    assert_eq!(trial.keys_with_failures().await, 0, "a success leaves failures behind");
}
