//! What an adapter declares, and the capabilities that need no consumer to be seen.

use std::collections::BTreeSet;
use std::time::Duration;

use inboxed::RunError;
use inboxed::broker::{BrokerError, Capabilities, Settled, Settlement, Settler, Source, Transport, Wanted};
use tokio::time::timeout;

use crate::adapter::{Adapter, report};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, LONG_LEASE, SERVICE, Trial, eventually, fresh_source};

const A_WHILE: Duration = Duration::from_secs(30);

/// Exactly what it is held to, and the lease that it was started with.
pub(crate) async fn declares_what_it_is_held_to<A: Adapter>() {
    let trial = Trial::<A>::new("declares_what_it_is_held_to").await;
    let source = trial.broker.connect("").unwrap().open(&trial.source, &by_hand()).await.unwrap();
    let mut held_to = A::held_to();
    held_to.lease = Some(LONG_LEASE);
    assert_eq!(source.capabilities(), held_to);
}

/// What a consumer of twenty messages at once wants.
fn by_hand() -> Wanted {
    Wanted::new(SERVICE, 20)
}

/// Receives this many deliveries from a source by hand.
async fn receive<S: Source>(source: &mut S, count: usize) -> Vec<inboxed::broker::Incoming<S::Token>> {
    let mut received = Vec::new();
    while received.len() < count {
        let more = timeout(A_WHILE, source.receive(count - received.len())).await.expect("deliveries in time");
        received.extend(more.unwrap());
    }
    received
}

/// A message keeps its position, and later ones have higher positions; without the capability there is none.
pub(crate) async fn position<A: Adapter>() {
    let trial = Trial::<A>::new("position").await;
    trial.publish_ids(0..20).await;
    let mut source = trial.broker.connect("").unwrap().open(&trial.source, &by_hand()).await.unwrap();
    let Capabilities { position, delivery_count, .. } = source.capabilities();

    let mut rounds = Vec::new();
    for round in 1..=2 {
        let received = receive(&mut source, 20).await;
        let mut positions = received
            .iter()
            .map(|delivery| (delivery.received.body.clone(), delivery.received.position))
            .collect::<Vec<_>>();
        positions.sort_by_key(|(body, _)| (0..20).position(|id| *body == crate::handlers::body(id)));
        rounds.push(positions);
        if delivery_count {
            assert!(received.iter().all(|delivery| delivery.received.delivery_count == round));
        }
        let releases = received.into_iter().map(|delivery| Settlement::Release(delivery.token));
        source.settler().settle(releases.collect()).await;
    }

    assert_eq!(rounds[0], rounds[1], "a message's position changed");
    let positions = rounds[0].iter().filter_map(|(_, position)| *position).collect::<Vec<_>>();
    assert_eq!(positions.len(), if position { 20 } else { 0 });
    assert!(positions.is_sorted_by(|before, after| before < after), "{positions:?}");
}

/// One call settles many deliveries, with an answer for each in order; one of them is late.
pub(crate) async fn batch_answers<A: Adapter>() {
    let trial = Trial::<A>::new("batch_answers").await;
    trial.publish_ids(0..10).await;
    let mut source = trial.broker.connect("").unwrap().open(&trial.source, &by_hand()).await.unwrap();
    let received = receive(&mut source, 10).await;
    let early = received[4].token.clone();
    source.settler().settle(vec![Settlement::Release(early)]).await;

    let releases = received.into_iter().map(|delivery| Settlement::Release(delivery.token));
    let settled = source.settler().settle(releases.collect()).await;
    let lost = settled.iter().enumerate().filter(|(_, settled)| **settled == Settled::Lost).map(|(index, _)| index);
    assert_eq!(settled.len(), 10);
    // A broker that confirms nothing may not know.
    assert_eq!(lost.collect::<Vec<_>>(), if settled[4] == Settled::Sent { vec![] } else { vec![4] });
    let again = receive(&mut source, 10).await.into_iter().map(|delivery| delivery.received.body);
    assert_eq!(again.collect::<BTreeSet<_>>().len(), 10);
}

/// A source that isn't there is made by its first consumer; or it is refused with what makes it, and so made by no slip of a
/// name.
pub(crate) async fn topology_missing<A: Adapter>() {
    let mut trial = Trial::<A>::new("topology_missing").await;
    trial.source = fresh_source("topology_missing");
    let running = trial.run(trial.consumer(&Script::plain()));
    if !A::MAKES_WHEN_OPENED {
        let Err(RunError::Source { name, error }) = running.ended().await else { panic!("it runs on nothing") };
        assert_eq!(name, trial.source);
        assert!(matches!(error, BrokerError::Refused(_)) && error.to_string().contains("create_topology"), "{error}");
        return report(trial.row, format_args!("refused: {error}"));
    }
    eventually("it is made", async || trial.log.opened() == 1).await;
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Once).await;
}

/// What a source needs is made when that is asked for, and once; then a consumer runs on it.
pub(crate) async fn topology<A: Adapter>() {
    let mut trial = Trial::<A>::new("topology").await;
    trial.source = fresh_source("topology");
    let broker = trial.broker.connect("").unwrap();
    let made = trial.consumer(&Script::plain()).create_topology(&broker).await.unwrap();
    // Only a broker without a server has nothing to make.
    assert_eq!(made.is_empty(), !A::held_to().persistent, "{made:?}");
    assert!(made.iter().all(|made| made.source == trial.source && !made.what.is_empty()), "{made:?}");
    let again = trial.consumer(&Script::plain()).create_topology(&broker).await.unwrap();
    assert!(again.is_empty(), "made again: {again:?}");

    trial.publish(body(1)).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 1, Deliveries::Once).await;
    let after = trial.consumer(&Script::plain()).create_topology(&broker).await.unwrap();
    assert!(after.is_empty(), "made again after a run: {after:?}");
}
