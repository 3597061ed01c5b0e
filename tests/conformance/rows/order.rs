//! Order within an ordering key.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use crate::adapter::{Adapter, Outgoing, declared};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, Trial, eventually};

async fn publish<A: Adapter>(trial: &Trial<A>, id: u64, key: u64) -> Option<()> {
    let outgoing = Outgoing { body: body(id), ordering_key: Some(format!("key-{key}")), ..Outgoing::default() };
    let published = trial.broker.publish(&trial.source, outgoing).await;
    declared(trial.row, A::held_to().ordered, published)
}

/// The second message of a key is held until the first is settled.
pub(crate) async fn unacked_blocks<A: Adapter>() {
    let trial = Trial::<A>::new("unacked_blocks").await;
    let gate = Gate::closed();
    let script = gate.holds(|_| true);
    let running = trial.run(trial.consumer(&script));
    for id in 1..=2 {
        if publish(&trial, id, 1).await.is_none() {
            running.stop().await;
            return;
        }
    }
    eventually("the first runs", async || script.started(1)).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(trial.log.delivered(), 1, "the second didn't wait for the first");
    gate.open();
    trial.finish(running, 2, Deliveries::Once).await;
}

/// Messages of a key are handled in the order of their publishing, though some fail at first.
pub(crate) async fn order_by_key<A: Adapter>() {
    let trial = Trial::<A>::new("order_by_key").await;
    let script =
        Script::new(async |step| if step.id % 50 == 0 && step.attempt == 1 { Err("at first".into()) } else { Ok(()) });
    let running = trial.run(trial.consumer(&script));
    for id in 0..1_000 {
        if publish(&trial, id, id % 16).await.is_none() {
            running.stop().await;
            return;
        }
    }
    trial.finish(running, 1_000, Deliveries::Repeated).await;

    let mut last = BTreeMap::new();
    for (_, id, ..) in trial.effects().await {
        let before = last.insert(id % 16, id);
        assert!(before < Some(id), "{id} came after {before:?}");
    }
}
