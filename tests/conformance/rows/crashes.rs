//! Messages whose handling ends in the middle, as when the process is killed: here by ending the message's task.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inboxed::store::Reason;
use inboxed::testing::FaultPoint;

use crate::adapter::Adapter;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Trial, eventually};

/// Ended once at each point of the order: one effect, and the message isn't lost.
pub(crate) async fn crash_points<A: Adapter>() {
    for point in FaultPoint::SUCCESS {
        let trial = Trial::<A>::with_lease("crash_points", A::SHORT_LEASE).await;
        let crashed = Arc::new(AtomicBool::new(false));
        let consumer = trial.consumer(&Script::plain()).on_fault_point({
            let crashed = Arc::clone(&crashed);
            move |reached| {
                let first = reached == point && !crashed.swap(true, Ordering::AcqRel);
                assert!(!first, "crash at {point}");
            }
        });
        let running = trial.run(consumer);
        trial.publish(body(1)).await;
        trial.finish(running, 1, Deliveries::Repeated).await;
        assert!(crashed.load(Ordering::Acquire), "{point} was never reached");
        let deliveries = if point == FaultPoint::Acknowledged { 1 } else { 2 };
        assert_eq!(trial.log.delivered(), deliveries, "deliveries after a crash at {point}");
    }
}

thread_local! {
    /// Whether the body that returned last on this thread was the deadly one. The fault point follows in the same poll.
    static DEADLY: Cell<bool> = const { Cell::new(false) };
}

/// A message that kills whoever runs it is isolated and dead-lettered within the limit; its neighbours are handled.
pub(crate) async fn suspect<A: Adapter>() {
    let trial = Trial::<A>::with_lease("suspect", A::SHORT_LEASE).await;
    let script = Script::new(async |step| {
        DEADLY.set(step.id == 4);
        Ok(())
    });
    let consumer = trial.consumer(&script).on_fault_point(|point| {
        let deadly = point == FaultPoint::EffectDone && DEADLY.replace(false);
        assert!(!deadly, "killed by message 4");
    });
    let running = trial.run(consumer);
    trial.publish_ids(0..10).await;
    eventually("the poison is a dead letter", async || !trial.dead_letters().await.is_empty()).await;
    trial.finish(running, 9, Deliveries::Repeated).await;

    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::Poison, &body(4)[..]));
    let deadly = script.steps().iter().filter(|step| step.id == 4).count();
    assert!(deadly <= 6, "the poison ran {deadly} times");
    let neighbours = script.steps().iter().filter(|step| step.id != 4).count();
    assert_eq!(neighbours, 9);
}
