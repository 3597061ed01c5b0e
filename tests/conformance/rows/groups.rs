//! Several groups of consumers, early and late.

use std::time::Duration;

use inboxed::Consumer;
use sqlx::Sqlite;
use tokio::time::sleep;

use crate::adapter::{Adapter, declared};
use crate::handlers::{Script, apply};
use crate::trial::{Deliveries, Trial, eventually, service};

/// A group's consumer: a service of its own, whose effects bear its name.
fn member<A: Adapter>(trial: &Trial<A>, name: &str) -> Consumer<Sqlite, Script> {
    let script = Script::plain().named(name);
    service(name, trial.inbox.clone(), &script).handle(&*trial.source, apply)
}

async fn effects_of<A: Adapter>(trial: &Trial<A>, name: &str) -> usize {
    trial.effects().await.iter().filter(|(who, ..)| who == name).count()
}

/// Each group gets every message.
pub(crate) async fn groups<A: Adapter>() {
    let trial = Trial::<A>::new("groups").await;
    let names = ["billing", "shipping"];
    if names.iter().any(|name| declared(trial.row, A::held_to().groups, trial.broker.connect(name)).is_none()) {
        return;
    }
    for name in names {
        trial.prepare(name, &trial.source).await;
    }
    let running = names.map(|name| trial.run_in_group(name, member(&trial, name)));
    trial.publish_ids(0..50).await;
    for name in names {
        trial.settled_in(name).await;
        eventually("each group has every effect", async || effects_of(&trial, name).await == 50).await;
    }
    for running in running {
        running.stop().await;
    }
    trial.count(100, Deliveries::Repeated).await;
    assert_eq!(trial.log.delivered(), 100);
}

/// A group that comes late gets what was published before, in every round; without the capability it gets none of it.
pub(crate) async fn late_subscriber<A: Adapter>() {
    let trial = Trial::<A>::new("late_subscriber").await;
    let replay = A::held_to().replay;
    if declared(trial.row, A::held_to().groups, trial.broker.connect("late-0")).is_none() {
        return;
    }
    for round in 1..=3_usize {
        let first = 10 * (u64::try_from(round).unwrap() - 1);
        trial.publish_ids(first..first + 10).await;
        let name = format!("late-{round}");
        trial.prepare(&name, &trial.source).await;
        let running = trial.run_in_group(&name, member(&trial, &name));
        let expected = if replay { round * 10 } else { 0 };
        if !replay {
            sleep(Duration::from_millis(300)).await;
        }
        eventually("the late group has its effects", async || effects_of(&trial, &name).await >= expected).await;
        running.stop().await;
        assert_eq!(effects_of(&trial, &name).await, expected);
    }
    trial.count(if replay { 60 } else { 0 }, Deliveries::Repeated).await;
}
