//! Deliveries that outlive their lease, and copies of one message at the same time.

use std::time::Duration;

use inboxed::broker::Settled;
use inboxed::{Check, Consumer, RunError};
use sqlx::Sqlite;
use tokio::time::sleep;

use crate::adapter::{Adapter, report};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, Trial, eventually};
use crate::watch::Answer;

/// A script that takes this share of a lease for each message.
fn takes(lease: Duration, share: f64) -> Script {
    let time = lease.mul_f64(share);
    Script::new(move |_| async move {
        sleep(time).await;
        Ok(())
    })
}

/// Where no lease is extended, a timeout beyond it refuses the start.
async fn refused<A: Adapter>(trial: &Trial<A>, consumer: Consumer<Sqlite, Script>) {
    let ended = trial.run(consumer).ended().await;
    let Err(RunError::Findings(findings)) = &ended else { panic!("not refused: {ended:?}") };
    assert_eq!(findings.iter().map(|finding| finding.check).collect::<Vec<_>>(), [Check::Lease]);
    report(trial.row, format_args!("refused: {}", findings[0]));
}

/// A body that takes three leases has one delivery, since its lease is kept.
pub(crate) async fn lease_outlived<A: Adapter>() {
    let trial = Trial::<A>::with_lease("lease_outlived", A::SHORT_LEASE).await;
    let script = takes(A::SHORT_LEASE, 3.0);
    let consumer = trial.consumer(&script).timeout(Duration::from_secs(30));
    if A::held_to().fixed_lease {
        return refused(&trial, consumer).await;
    }
    let running = trial.run(consumer);
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Once).await;
}

/// Without the keeper it is delivered again, and still has one effect; here both copies are in one process.
pub(crate) async fn lease_outlived_without_keeper<A: Adapter>() {
    let trial = Trial::<A>::with_lease("lease_outlived_without_keeper", A::SHORT_LEASE).await;
    let script = takes(A::SHORT_LEASE, 3.0);
    let consumer = trial.consumer(&script).timeout(Duration::from_secs(30)).keep_leases(false).allow(Check::Lease);
    let running = trial.run(consumer);
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert!(trial.log.delivered() >= 2, "nothing was delivered again");
}

/// Messages that wait here have their lease kept: ten, handled one by one, are delivered once each.
pub(crate) async fn waiting_lease<A: Adapter>() {
    let trial = Trial::<A>::with_lease("waiting_lease", A::SHORT_LEASE).await;
    let script = takes(A::SHORT_LEASE, 0.9);
    trial.publish_ids(0..10).await;
    let consumer = trial.consumer(&script).concurrency(1).prefetch(9).timeout(Duration::from_secs(30));
    if A::held_to().fixed_lease {
        return refused(&trial, consumer).await;
    }
    let running = trial.run(consumer);
    trial.finish(running, 10, Deliveries::Once).await;
    assert!(trial.log.deliveries().iter().any(|seen| seen.batch > 1), "nothing waited");
    assert!(script.steps().iter().all(|step| !step.lease_lost));
}

/// Without the keeper none is *started* after its lease is gone.
pub(crate) async fn waiting_lease_without_keeper<A: Adapter>() {
    let trial = Trial::<A>::with_lease("waiting_lease_without_keeper", A::SHORT_LEASE).await;
    let script = takes(A::SHORT_LEASE, 0.4);
    trial.publish_ids(0..10).await;
    let consumer = trial.consumer(&script).concurrency(1).prefetch(9).timeout(Duration::from_secs(30));
    let running = trial.run(consumer.keep_leases(false).allow(Check::Lease));
    trial.finish(running, 10, Deliveries::Repeated).await;
    assert!(trial.log.delivered() > 10, "no lease ended while its message waited");
    assert!(script.steps().iter().all(|step| !step.lease_lost), "a message was started after its lease was gone");
}

/// A settlement that comes too late is lost, and the consumer goes on.
pub(crate) async fn late_settle<A: Adapter>() {
    let trial = Trial::<A>::with_lease("late_settle", A::SHORT_LEASE).await;
    let script = Script::new(|step| async move {
        if step.id == 1 {
            sleep(A::SHORT_LEASE.mul_f64(1.5)).await;
        }
        Ok(())
    });
    // There is room for the message to come again meanwhile: a broker may take a late acknowledgement of one that hasn't.
    let consumer = trial.consumer(&script).concurrency(1).prefetch(1).timeout(Duration::from_secs(30));
    let running = trial.run(consumer.keep_leases(false).allow(Check::Lease));
    trial.publish(body(1)).await;
    trial.settled().await;
    trial.publish(body(2)).await;
    trial.finish(running, 2, Deliveries::Repeated).await;

    let late = trial.log.answered(Answer::Ack, Settled::Lost) + trial.log.answered(Answer::Ack, Settled::Sent);
    assert!(late > 0, "no acknowledgement was late");
    assert!(trial.log.delivered() >= 3, "the message whose lease ended didn't come again");
}

/// The same message in two processes at once: neither is acknowledged before the first commits.
pub(crate) async fn contention<A: Adapter>() {
    let trial = Trial::<A>::new("contention").await;
    let gate = Gate::closed();
    let script = gate.holds(|_| true);
    let one = trial.run(trial.consumer(&script).concurrency(1));
    let other = trial.run(trial.other_consumer(&script).await.concurrency(1));
    // The start writes to the inbox too, and would wait for a body that holds SQLite's one lock.
    eventually("both consumers listen", async || trial.log.opened() == 2).await;
    trial.publish(body(1)).await;
    trial.publish(body(1)).await;
    eventually("both processes have a copy", async || trial.log.delivered() >= 2).await;
    eventually("one runs", async || script.started(1)).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!((script.steps().len(), trial.log.acknowledged()), (1, 0), "before the first has committed");

    gate.open();
    trial.settled().await;
    other.stop().await;
    trial.finish(one, 1, Deliveries::Repeated).await;
    assert_eq!(script.steps().len(), 1, "the second copy ran as well");
    assert_eq!(trial.log.acknowledged(), 2);
}
