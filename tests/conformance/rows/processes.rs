//! Processes of their own, ended by SIGTERM and by a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use inboxed::{Check, Inbox};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, sleep};

use crate::adapter::Adapter;
use crate::child;
use crate::handlers::{Script, apply, body};
use crate::trial::{Deliveries, LONG_LEASE, SERVICE, Trial, eventually, service};
use crate::watch::{Log, Watched};

const GRACE: Duration = Duration::from_secs(4);

/// The adapter in a child. The trial's own cleans up, in the parent.
async fn in_child<A: Adapter>(lease: Duration) -> &'static A {
    Box::leak(Box::new(A::start(lease).await))
}

/// The process that is told to end: two bodies take a while, one takes for ever, seven messages wait.
async fn old_process<A: Adapter>(source: &str, database: &str) {
    let script = Script::new(async |step| {
        sleep(if step.id < 3 { Duration::from_secs(1) } else { Duration::from_hours(1) }).await;
        Ok(())
    });
    let consumer = service(SERVICE, Inbox::connect(database).await.unwrap(), &script);
    let consumer = consumer.handle(source, apply).concurrency(3).prefetch(7).grace(GRACE);
    let consumer = consumer.timeout(Duration::from_hours(1)).allow(Check::Lease);
    let log = Arc::<Log>::default();
    let broker = in_child::<A>(LONG_LEASE).await;
    let transport = Watched { inner: broker.connect("").unwrap(), log: Arc::clone(&log) };
    let all_here = async {
        // One after the other, so that the long one is last in the queue for SQLite's one writer.
        for id in 1..=10 {
            broker.publish(source, body(u64::try_from(id).unwrap()).into()).await.unwrap();
            eventually("it is here", async || log.distinct() == id).await;
            sleep(Duration::from_millis(if id < 3 { 50 } else { 0 })).await;
        }
        eventually("the first runs", async || script.started(1)).await;
        println!("ready");
    };
    let (ended, ()) = tokio::join!(consumer.run(transport), all_here);
    ended.unwrap();
}

/// X05: three run and seven wait. Short bodies commit and are acknowledged, the long one is rolled back, all the rest is given
/// back at once and uncounted, and the process ends in time.
pub(crate) async fn x05_sigterm_drains<A: Adapter>() {
    if let Some((source, database)) = child::role() {
        return old_process::<A>(&source, &database).await;
    }
    let trial = Trial::<A>::new("x05_sigterm_drains").await;
    let mut old = child::start(&trial.source, &trial.url());
    let mut lines = BufReader::new(old.stdout.take().unwrap()).lines();
    eventually("it is ready", async || lines.next_line().await.unwrap().is_none_or(|line| line.contains("ready")))
        .await;
    let term = ["-TERM", &old.id().unwrap().to_string()].map(str::to_owned);
    let asked_at = Instant::now();
    assert!(tokio::process::Command::new("kill").args(term).status().await.unwrap().success());
    let ended = old.wait().await.unwrap();
    let took = asked_at.elapsed();
    assert!(ended.success() && took < GRACE + Duration::from_secs(1), "{ended} after {took:?}");
    let effects = trial.effects().await.into_iter().map(|(_, id, ..)| id).collect::<BTreeSet<_>>();
    assert_eq!(effects, BTreeSet::from([1, 2]));
    assert_eq!(trial.keys_with_failures().await, 0);

    let begun = Instant::now();
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 10, Deliveries::Repeated).await;
    assert!(begun.elapsed() < LONG_LEASE / 2, "what was given back came only when its lease ended");
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 1));
}

/// X07: the process is gone at each point of the order, without a word to the broker.
#[cfg(feature = "testing")]
pub(crate) async fn x07_killed_process_has_one_effect<A: Adapter>() {
    use inboxed::testing::FaultPoint;

    // A lease that can't be extended ends with its connection, and so with the process.
    let lease = if A::held_to().fixed_lease { LONG_LEASE } else { A::SHORT_LEASE };
    if let Some((role, database)) = child::role() {
        let (point, source) = role.split_once(' ').unwrap();
        let point = FaultPoint::by_name(point).unwrap();
        let consumer = service(SERVICE, Inbox::connect(&database).await.unwrap(), &Script::plain());
        let consumer = consumer.handle(source, apply).on_fault_point(move |reached| {
            if reached == point {
                std::process::abort();
            }
        });
        return consumer.run(in_child::<A>(lease).await.connect("").unwrap()).await.unwrap();
    }
    for point in FaultPoint::SUCCESS {
        let trial = Trial::<A>::with_lease("x07_killed_process_has_one_effect", lease).await;
        trial.publish(body(1)).await;
        let ended = child::end(child::start(&format!("{point} {}", trial.source), &trial.url())).await;
        assert!(child::killed(&ended), "at {point}: {}", ended.status);
        let running = trial.run(trial.consumer(&Script::plain()));
        trial.finish(running, 1, Deliveries::Repeated).await;
        let acknowledged = point == FaultPoint::Acknowledged;
        if A::CONFIRMS || !acknowledged {
            assert_eq!(trial.log.delivered(), usize::from(!acknowledged), "deliveries after a crash at {point}");
        }
    }
}
