//! Consumers that are asked to end while messages are here.

use std::collections::BTreeSet;
use std::time::Duration;

use inboxed::broker::Settled;

use crate::adapter::Adapter;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, Trial, eventually};
use crate::watch::Answer;

/// With three running and seven waiting: the short ones commit, the long one is rolled back and given back at the deadline,
/// the waiting ones come back with no attempt counted, and the consumer ends in time.
pub(crate) async fn drain<A: Adapter>() {
    let trial = Trial::<A>::new("drain").await;
    let (short, long) = (Gate::closed(), Gate::closed());
    let script = Script::new({
        let (short, long) = (short.clone(), long.clone());
        move |step| {
            let gate = if step.id == 3 { long.clone() } else { short.clone() };
            async move {
                gate.pass().await;
                Ok(())
            }
        }
    });
    let grace = Duration::from_secs(2);
    let running = trial.run(trial.consumer(&script).concurrency(3).prefetch(7).grace(grace));
    // One after the other, so that the long one is last in the queue for SQLite's one writer.
    for id in 1..=3 {
        trial.publish(body(id)).await;
        eventually("it is here", async || trial.log.distinct() == usize::try_from(id).unwrap()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    trial.publish_ids(4..=10).await;
    eventually("all are here", async || trial.log.distinct() == 10).await;
    eventually("the first runs", async || script.started(1)).await;

    running.begin_stop();
    short.open();
    let ended_after = running.stop().await;
    assert!(ended_after < grace + Duration::from_secs(1), "the consumer took {ended_after:?} to end");
    let effects = trial.effects().await.into_iter().map(|(_, id, ..)| id).collect::<BTreeSet<_>>();
    assert_eq!(effects, BTreeSet::from([1, 2]));
    assert_eq!(trial.log.acknowledged(), 2);
    let given_back = [Settled::Confirmed, Settled::Sent].map(|settled| trial.log.answered(Answer::Release, settled));
    assert_eq!(given_back.into_iter().sum::<usize>(), 8);
    assert_eq!(
        script.steps().iter().map(|step| step.id).collect::<Vec<_>>(),
        [1, 2, 3],
        "a waiting message was started"
    );
    assert_eq!(trial.keys_with_failures().await, 0);

    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 10, Deliveries::Repeated).await;
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 1));
}

/// Deploys don't bury what they give back unstarted, however often.
pub(crate) async fn given_back<A: Adapter>() {
    let trial = Trial::<A>::new("given_back").await;
    trial.publish_ids(0..11).await;
    let gate = Gate::closed();
    let stuck = gate.holds(|_| true);
    for round in 1..=10 {
        let consumer = trial.consumer(&stuck).concurrency(1).prefetch(10).grace(Duration::from_millis(50));
        let running = trial.run(consumer);
        eventually("all are here", async || trial.log.delivered() >= 11 * round).await;
        running.stop().await;
    }
    assert!(trial.dead_letters().await.is_empty());
    assert_eq!(trial.keys_with_failures().await, 0);

    let policy = inboxed::RetryPolicy::default().attempts(1);
    let running = trial.run(trial.consumer(&Script::plain()).retry(policy));
    trial.finish(running, 11, Deliveries::Repeated).await;
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 1));
    assert!(trial.dead_letters().await.is_empty());
}
